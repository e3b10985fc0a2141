//! Reads from a library's header which machine it is for.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

/// The machine of a library, as [`std::env::consts::ARCH`] has it, and its system, as [`std::env::consts::OS`] has it;
/// `None` if the file is no library of a system that is known.
pub(super) fn made_for(file: &mut File) -> io::Result<Option<(&'static str, &'static str)>> {
    let found = head(file);
    file.seek(SeekFrom::Start(0))?;
    match found {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        found => found,
    }
}

fn head(file: &mut File) -> io::Result<Option<(&'static str, &'static str)>> {
    file.seek(SeekFrom::Start(0))?;
    let mut head = [0; 64];
    file.read_exact(&mut head)?;
    // ELF of 64 bits with little-endian numbers: `e_machine` of <elf.h>.
    if head.starts_with(b"\x7fELF\x02\x01") {
        return Ok(Some(match u16::from_le_bytes([head[18], head[19]]) {
            62 => ("linux", "x86_64"),
            183 => ("linux", "aarch64"),
            _ => ("linux", "another processor"),
        }));
    }
    // Microsoft's PE format: the place of its header, its signature, `Machine`.
    if head.starts_with(b"MZ") {
        let place = u32::from_le_bytes([head[60], head[61], head[62], head[63]]);
        file.seek(SeekFrom::Start(place.into()))?;
        let mut header = [0; 6];
        file.read_exact(&mut header)?;
        if header.starts_with(b"PE\0\0") {
            return Ok(Some(match u16::from_le_bytes([header[4], header[5]]) {
                0x8664 => ("windows", "x86_64"),
                0xAA64 => ("windows", "aarch64"),
                _ => ("windows", "another processor"),
            }));
        }
    }
    Ok(None)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write;

    use super::*;

    /// The head of a library.
    pub(crate) fn library(system: &str, machine: &str) -> Vec<u8> {
        let mut bytes = vec![0; 80];
        if system == "linux" {
            bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
            bytes[18] = if machine == "x86_64" { 62 } else { 183 };
        } else {
            bytes[..2].copy_from_slice(b"MZ");
            bytes[60] = 64;
            bytes[64..68].copy_from_slice(b"PE\0\0");
            bytes[68..70].copy_from_slice(if machine == "x86_64" { &[0x64, 0x86] } else { &[0x64, 0xAA] });
        }
        bytes
    }

    #[test]
    fn the_head_of_a_library_says_its_machine() {
        let made_for = |bytes: &[u8]| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(bytes).unwrap();
            made_for(&mut file).unwrap()
        };
        for (system, machine) in
            [("linux", "x86_64"), ("linux", "aarch64"), ("windows", "x86_64"), ("windows", "aarch64")]
        {
            assert_eq!(made_for(&library(system, machine)), Some((system, machine)));
        }
        assert_eq!(made_for(b"#!/bin/sh"), None);
        assert_eq!(made_for(&[b'M'; 100]), None);
        let mut beyond = library("windows", "x86_64");
        beyond[63] = 0x7f;
        assert_eq!(made_for(&beyond), None);
        // The test program itself.
        let mut program = File::open(std::env::current_exe().unwrap()).unwrap();
        let here = (std::env::consts::OS, std::env::consts::ARCH);
        assert_eq!(super::made_for(&mut program).unwrap(), Some(here));
    }
}
