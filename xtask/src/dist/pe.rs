//! What a program for Windows needs of the system, from its PE headers.

use object::LittleEndian;
use object::pe::{IMAGE_FILE_MACHINE_AMD64, ImageNtHeaders64};
use object::read::pe::{ImageNtHeaders, PeFile};
use std::collections::BTreeSet;

use super::target::Target;

/// The libraries that a program names, in lower-case letters.
///
/// # Errors
/// It is no program or library of 64 bits for Windows, or is for another machine.
pub(super) fn imports(name: &str, bytes: &[u8], target: &Target) -> Result<BTreeSet<String>, String> {
    let damaged = |error: object::read::Error| format!("{name}: {error}");
    let file = PeFile::<ImageNtHeaders64>::parse(bytes).map_err(damaged)?;
    let machine = file.nt_headers().file_header().machine.get(LittleEndian);
    if machine != IMAGE_FILE_MACHINE_AMD64 || target.machine != "x86_64" {
        return Err(format!("{name}: expected a file for {}, found one for machine {machine:x}", target.machine));
    }
    let mut libraries = BTreeSet::new();
    let Some(table) = file.import_table().map_err(damaged)? else { return Ok(libraries) };
    let mut descriptors = table.descriptors().map_err(damaged)?;
    while let Some(descriptor) = descriptors.next().map_err(damaged)? {
        let library = table.name(descriptor.name.get(LittleEndian)).map_err(damaged)?;
        libraries.insert(String::from_utf8_lossy(library).to_lowercase());
    }
    Ok(libraries)
}

/// Libraries that come with a compiler and not with Windows. A program that names one does not start elsewhere.
pub(super) fn of_a_compiler(library: &str) -> bool {
    ["libgcc", "libstdc++", "libwinpthread", "libssp", "libgomp"].iter().any(|beginning| library.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test's way to fail

    use super::super::target;
    use super::*;

    #[test]
    fn a_program_of_another_system_is_refused() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let target = target::parse("x86_64-pc-windows-gnu").unwrap();
        assert!(imports("it", &program, target).unwrap_err().starts_with("it: "));
    }

    #[test]
    fn libraries_of_compilers_are_known() {
        for library in ["libgcc_s_seh-1.dll", "libstdc++-6.dll", "libwinpthread-1.dll"] {
            assert!(of_a_compiler(library), "{library}");
        }
        for library in ["kernel32.dll", "api-ms-win-crt-runtime-l1-1-0.dll", "bcryptprimitives.dll"] {
            assert!(!of_a_compiler(library), "{library}");
        }
    }
}
