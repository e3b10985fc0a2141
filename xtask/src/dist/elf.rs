//! The system requirements of a program, from its ELF headers.

use super::target::Target;
use object::LittleEndian;
use object::elf::{DT_NEEDED, EM_AARCH64, EM_X86_64, FileHeader64};
use object::read::elf::FileHeader;
use std::collections::BTreeSet;

/// Required libraries and the required release of the GNU C library.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    /// The libraries by name, without ONNX Runtime.
    pub(super) libraries: BTreeSet<String>,
    /// The oldest glibc that has every symbol: 2.34 is (2, 34).
    pub(super) glibc: (u32, u32),
}

impl Needs {
    /// Adds the requirements of another program or library.
    ///
    /// # Errors
    /// The file is not a 64-bit ELF file, or is for another machine.
    pub(super) fn add(&mut self, name: &str, bytes: &[u8], target: &Target) -> Result<(), String> {
        let damaged = |error: object::read::Error| format!("{name}: {error}");
        let header = FileHeader64::<LittleEndian>::parse(bytes).map_err(damaged)?;
        let endian = header.endian().map_err(damaged)?;
        let machine = match header.e_machine(endian) {
            EM_X86_64 => "x86_64",
            EM_AARCH64 => "aarch64",
            _ => "another machine",
        };
        if machine != target.machine {
            return Err(format!("{name}: expected a file for {}, found one for {machine}", target.machine));
        }
        let sections = header.sections(endian, bytes).map_err(damaged)?;
        let dynamic = sections.dynamic_table(endian, bytes).map_err(damaged)?;
        for entry in dynamic.iter().filter(|entry| entry.tag == DT_NEEDED) {
            let library = dynamic.string(entry).map_err(damaged)?;
            self.libraries.insert(String::from_utf8_lossy(library).into_owned());
        }
        if let Some((mut files, link)) = sections.gnu_verneed(endian, bytes).map_err(damaged)? {
            let strings = sections.strings(endian, bytes, link).map_err(damaged)?;
            while let Some((_, mut versions)) = files.next().map_err(damaged)? {
                while let Some(version) = versions.next().map_err(damaged)? {
                    let version = String::from_utf8_lossy(version.name(endian, strings).map_err(damaged)?).into_owned();
                    self.glibc = self.glibc.max(glibc(&version).unwrap_or_default());
                }
            }
        }
        Ok(())
    }
}

/// The release of glibc that a symbol version such as `GLIBC_2.34` names.
fn glibc(version: &str) -> Option<(u32, u32)> {
    let (major, rest) = version.strip_prefix("GLIBC_")?.split_once('.')?;
    let minor = rest.split('.').next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test's way to fail

    use super::super::target;
    use super::*;

    #[test]
    fn a_symbol_version_names_a_release() {
        assert_eq!(glibc("GLIBC_2.34"), Some((2, 34)));
        assert_eq!(glibc("GLIBC_2.2.5"), Some((2, 2)));
        assert_eq!((glibc("GLIBC_PRIVATE"), glibc("GLIBCXX_3.4.30")), (None, None));
    }

    #[test]
    fn this_program_needs_the_c_library() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let mut needs = Needs::default();
        needs.add("it", &program, target::here().unwrap()).unwrap();
        assert!(needs.libraries.contains("libc.so.6") && needs.glibc >= (2, 17), "{needs:?}");
        let other = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"].map(|name| target::parse(name).unwrap());
        let other = other.into_iter().find(|target| !target.is_here()).unwrap();
        let refused = Needs::default().add("it", &program, other).unwrap_err();
        assert!(refused.starts_with("it: expected a file for"), "{refused}");
        let refused = Needs::default().add("it", b"#!/bin/sh", other).unwrap_err();
        assert!(refused.starts_with("it: "), "{refused}");
    }
}
