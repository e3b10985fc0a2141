//! PE, the format of programs for Windows: the required libraries of a program, and its date.

use object::LittleEndian;
use object::pe::{IMAGE_FILE_MACHINE_AMD64, ImageNtHeaders64};
use object::read::pe::{ImageNtHeaders, PeFile};
use std::collections::BTreeSet;

use super::target::Target;

/// Where the date is after the signature of the PE headers, and where the checksum of the optional header.
const DATE: usize = 8;
const CHECKSUM: usize = 88;

/// The libraries that a program imports, in lower case.
///
/// # Errors
/// The file is not a 64-bit program or library for Windows, or is for another machine.
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

/// The program with this date, in seconds since 1970, and the matching checksum. Linkers and `strip` write the current
/// time.
///
/// # Errors
/// The date does not fit in the format.
pub(super) fn with_date(name: &str, mut bytes: Vec<u8>, target: &Target, seconds: u64) -> Result<Vec<u8>, String> {
    // This call checks the headers that the positions below belong to.
    imports(name, &bytes, target)?;
    let date = u32::try_from(seconds).map_err(|_| format!("{name}: the date of its format ends in 2106"))?;
    let headers = u32::from_le_bytes([bytes[60], bytes[61], bytes[62], bytes[63]]) as usize;
    let mut set = |place: usize, value: u32| bytes[place..place + 4].copy_from_slice(&value.to_le_bytes());
    set(headers + DATE, date);
    set(headers + CHECKSUM, 0);
    let checksum = checksum(&bytes);
    bytes[headers + CHECKSUM..headers + CHECKSUM + 4].copy_from_slice(&checksum.to_le_bytes());
    Ok(bytes)
}

/// Microsoft's checksum of a program whose checksum field is zero: the sum of its 16-bit words, with carries added at
/// once, plus its length.
fn checksum(bytes: &[u8]) -> u32 {
    let mut sum = 0;
    for word in bytes.chunks(2) {
        sum += u32::from(word[0]) | word.get(1).map_or(0, |high| u32::from(*high) << 8);
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum + bytes.len() as u32
}

/// Libraries that come with a compiler and not with Windows. A program that imports one does not start on other
/// machines.
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

    /// The smallest headers of a program without imports.
    fn program(date: u32) -> Vec<u8> {
        let mut bytes = vec![0; 0x40];
        bytes[..2].copy_from_slice(b"MZ");
        bytes[60] = 0x40;
        bytes.extend(b"PE\0\0\x64\x86\0\0");
        bytes.extend(date.to_le_bytes());
        // No symbols; the size of the optional header, and the flag of a program.
        bytes.extend([0, 0, 0, 0, 0, 0, 0, 0, 112, 0, 0x22, 0]);
        let optional = bytes.len();
        bytes.resize(optional + 112, 0);
        bytes[optional..optional + 2].copy_from_slice(&[0x0b, 0x02]);
        bytes
    }

    #[test]
    fn a_program_has_the_date_of_the_release() {
        let target = target::parse("x86_64-pc-windows-gnu").unwrap();
        let of_a_day = |date| with_date("it", program(date), target, 7).unwrap();
        assert_eq!(of_a_day(1), of_a_day(2));
        let made = of_a_day(1);
        assert_eq!(made[0x40 + DATE..][..4], [7, 0, 0, 0]);
        let mut bare = made.clone();
        bare[0x40 + CHECKSUM..][..4].fill(0);
        assert_eq!(made[0x40 + CHECKSUM..][..4], checksum(&bare).to_le_bytes());
        assert!(with_date("it", program(1), target, 1 << 32).unwrap_err().contains("2106"));
        assert!(with_date("it", vec![0; 80], target, 7).is_err());
    }

    #[test]
    fn a_checksum_adds_carries_and_the_length() {
        assert_eq!(checksum(&[0xff, 0xff, 0x02, 0x00, 0x05]), 2 + 5 + 5);
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
