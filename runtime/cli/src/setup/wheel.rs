//! Extracts libraries and licences from a wheel.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use tileforge_files::unfinished::create_folders;
use tileforge_files::{Digests, is_plain};
use zip::ZipArchive;
use zip::read::ZipFile;

use super::binary;
use super::record::Files;
use super::table::{Place, Table, Wheel};

/// The most members of a wheel.
const MOST_MEMBERS: usize = 10_000;

/// Unpacks what is installed of an opened wheel into `folder`. Returns the files by their paths there.
///
/// # Errors
/// What is wrong with the wheel, or with `folder`. Nothing of it can be used then.
pub(super) fn unpack(file: &File, wheel: &Wheel, table: &Table, folder: &Path) -> Result<Files, String> {
    let damaged = |error: zip::result::ZipError| format!("not a whole wheel: {error}; download it again");
    let mut archive = ZipArchive::new(file).map_err(damaged)?;
    if archive.len() > MOST_MEMBERS {
        return Err(format!("expected at most {MOST_MEMBERS} files in a wheel, found {}", archive.len()));
    }
    let mut places: BTreeMap<String, (String, usize)> = BTreeMap::new();
    let mut bytes = 0_u64;
    for index in 0..archive.len() {
        let member = archive.by_index(index).map_err(damaged)?;
        let name = checked_name(&member)?;
        let Some(place) = table.place(wheel, &name).filter(|_| !member.is_dir()) else { continue };
        bytes = bytes.saturating_add(member.size());
        if let Some((other, _)) = places.insert(target(&place).to_owned(), (name.clone(), index)) {
            return Err(format!("two of its files have one place: {other} and {name}"));
        }
    }
    let most = wheel.installed_bytes;
    let too_large = || format!("expected libraries with at most {most} bytes, found more");
    if bytes > most {
        return Err(too_large());
    }
    let mut left = most;
    let mut files = Files::new();
    for (path, (_, index)) in places {
        let mut member = archive.by_index(index).map_err(damaged)?;
        let target = folder.join(&path);
        target.parent().map_or(Ok(()), create_folders).map_err(|error| not_written(&path, &error))?;
        let mut made = File::create_new(&target).map_err(|error| not_written(&path, &error))?;
        // The size that a member declares may be wrong, so copied bytes are counted.
        let copied = io::copy(&mut (&mut member).take(left.saturating_add(1)), &mut made);
        left = match left.checked_sub(copied.map_err(|error| not_written(&path, &error))?) {
            Some(left) => left,
            None => return Err(too_large()),
        };
        check_machine(&target, wheel, &path)?;
        files.insert(path.clone(), digest(&target, &path)?);
        if let Some(second) = wheel.second_names.get(&path) {
            tileforge_files::link_or_copy(&target, &folder.join(second))
                .map_err(|error| not_written(second, &error))?;
            files.insert(second.clone(), files[&path].clone());
        }
    }
    if files.keys().all(|path| path.contains('/')) {
        return Err(format!("expected the libraries of {} {}, found none", wheel.package, wheel.version));
    }
    Ok(files)
}

/// The path of a member, checked not to lead outside the folder.
fn checked_name(member: &ZipFile<'_, &File>) -> Result<String, String> {
    let name = String::from_utf8(member.name_raw().to_vec()).map_err(|_| "a file name in it is not UTF-8")?;
    let parts = name.strip_suffix('/').unwrap_or(&name);
    if !parts.split('/').all(is_plain) {
        return Err(format!("a name in it leads out of its folder, or is not valid on every system: {name:?}"));
    }
    if member.is_symlink() {
        return Err(format!("expected files, found a link: {name}"));
    }
    Ok(name)
}

fn target(place: &Place) -> &str {
    match place {
        Place::Library(path) | Place::Licence(path) => path,
    }
}

/// Checks that a library is for the machine that the table states.
fn check_machine(file: &Path, wheel: &Wheel, path: &str) -> Result<(), String> {
    if path.contains('/') {
        return Ok(());
    }
    let found = File::open(file).and_then(|mut file| binary::made_for(&mut file));
    match found.map_err(|error| format!("{path}: {error}"))? {
        Some((system, machine)) if system == wheel.system && machine == wheel.machine => Ok(()),
        found => Err(other_machine(path, found, &wheel.system, &wheel.machine)),
    }
}

/// What is said of a library for another machine.
pub(super) fn other_machine(path: &str, found: Option<(&str, &str)>, system: &str, machine: &str) -> String {
    let found =
        found.map_or("a file that is no library".into(), |(system, machine)| format!("one for {system} on {machine}"));
    format!("{path}: expected a library for {system} on {machine}, found {found}")
}

pub(super) fn digest(file: &Path, path: &str) -> Result<String, String> {
    // Without a folder of known digests: the file is new.
    let found = Digests::new(None).of(file).map_err(|error| format!("{path}: {error}"))?;
    Ok(found.sha256)
}

pub(super) fn not_written(path: &str, error: &io::Error) -> String {
    format!("{path} cannot be written: {error}")
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write;

    use zip::write::SimpleFileOptions;
    use zip::{CompressionMethod, ZipWriter};

    use super::super::binary::tests::library;
    use super::*;

    /// A table with one wheel for this machine.
    pub(crate) fn table(sha256: &str, installed_bytes: u64) -> Table {
        let text = serde_json::json!({
            "licences": ["licen[sc]e*"],
            "wheels": [{
                "part": "cpu", "system": "linux", "machine": "x86_64", "package": "onnxruntime", "version": "1.31.1",
                "tags": "cp311-cp311-manylinux_2_28_x86_64", "sha256": sha256,
                "libraries": ["onnxruntime/capi/libonnxruntime*.so*"], "without": "*_large.so",
                "second_names": { "libonnxruntime.so.1.31.1": "libonnxruntime.so" },
                "installed_bytes": installed_bytes,
            }],
        });
        serde_json::from_value(text).unwrap()
    }

    /// A wheel with these members.
    pub(crate) fn wheel(path: &Path, members: &[(&str, &[u8])]) {
        let mut archive = ZipWriter::new(File::create(path).unwrap());
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
        for (name, content) in members {
            archive.start_file(*name, options).unwrap();
            archive.write_all(content).unwrap();
        }
        archive.finish().unwrap();
    }

    const MAIN: &str = "onnxruntime/capi/libonnxruntime.so.1.31.1";

    fn unpacked(members: &[(&str, &[u8])], most: u64) -> (tempfile::TempDir, Result<Files, String>) {
        let work = tempfile::tempdir().unwrap();
        let (path, folder) = (work.path().join("a.whl"), work.path().join("unpacked"));
        wheel(&path, members);
        std::fs::create_dir(&folder).unwrap();
        let table = table("", most);
        let found = unpack(&File::open(&path).unwrap(), &table.wheels[0], &table, &folder);
        (work, found)
    }

    #[test]
    fn libraries_come_out_under_all_their_names_with_licences() {
        let elf = library("linux", "x86_64");
        let members = [
            (MAIN, &elf[..]),
            ("onnxruntime/capi/libonnxruntime_large.so", &elf),
            ("onnxruntime/capi/module.so", b"python"),
            ("onnxruntime/LICENSE", b"the licence"),
        ];
        let (work, files) = unpacked(&members, 1000);
        let files = files.unwrap();
        let names = ["libonnxruntime.so", "libonnxruntime.so.1.31.1", "licences/onnxruntime/LICENSE"];
        assert_eq!(files.keys().collect::<Vec<_>>(), names);
        let folder = work.path().join("unpacked");
        assert_eq!(std::fs::read(folder.join("libonnxruntime.so")).unwrap(), elf);
        assert_eq!(std::fs::read(folder.join("licences/onnxruntime/LICENSE")).unwrap(), b"the licence");
    }

    #[test]
    fn hostile_wheels_are_refused_before_anything_is_written() {
        let elf = library("linux", "x86_64");
        for name in [
            "onnxruntime/capi/../../../libonnxruntime.so",
            "../libonnxruntime.so",
            "/libonnxruntime.so",
            "onnxruntime\\capi\\x.py",
            "C:x.py",
            "a//b.py",
        ] {
            let (work, refused) = unpacked(&[(MAIN, &elf), (name, &elf)], 1000);
            let refused = refused.unwrap_err();
            assert!(refused.contains("leads out of its folder"), "{name}: {refused}");
            assert_eq!(std::fs::read_dir(work.path().join("unpacked")).unwrap().count(), 0, "{name}");
        }
        let (_work, refused) =
            unpacked(&[(MAIN, &elf), ("onnxruntime/capi/libonnxruntime/libonnxruntime.so.1.31.1", &elf)], 1000);
        assert!(refused.unwrap_err().contains("two of its files have one place"));
        let (_work, refused) = unpacked(&[("onnxruntime/LICENSE", b"x")], 1000);
        assert!(refused.unwrap_err().contains("expected the libraries of onnxruntime 1.31.1, found none"));
        for other in [library("linux", "aarch64"), library("windows", "x86_64"), vec![0; 100]] {
            let (_work, refused) = unpacked(&[(MAIN, &other)], 1000);
            let refused = refused.unwrap_err();
            assert!(refused.contains("expected a library for linux on x86_64, found"), "{refused}");
        }
    }

    #[test]
    fn links_in_wheels_are_refused() {
        let work = tempfile::tempdir().unwrap();
        let path = work.path().join("a.whl");
        let mut archive = ZipWriter::new(File::create(&path).unwrap());
        archive.add_symlink(MAIN, "/etc/passwd", SimpleFileOptions::default()).unwrap();
        archive.finish().unwrap();
        let table = table("", 1000);
        let refused = unpack(&File::open(&path).unwrap(), &table.wheels[0], &table, work.path()).unwrap_err();
        assert!(refused.contains("expected files, found a link"), "{refused}");
    }

    #[test]
    fn no_more_is_written_than_the_table_says() {
        let mut large = library("linux", "x86_64");
        large.resize(1 << 20, 0);
        let (work, refused) = unpacked(&[(MAIN, &large)], 1000);
        assert!(refused.unwrap_err().contains("at most 1000 bytes"));
        assert_eq!(std::fs::read_dir(work.path().join("unpacked")).unwrap().count(), 0);
        // The same, with a size of 80 bytes in both of its heads.
        let path = work.path().join("lying.whl");
        wheel(&path, &[(MAIN, &large)]);
        let mut bytes = std::fs::read(&path).unwrap();
        let said = (1_u32 << 20).to_le_bytes();
        let places: Vec<usize> = (0..bytes.len() - 4).filter(|&at| bytes[at..at + 4] == said).collect();
        assert!(!places.is_empty());
        places.into_iter().for_each(|at| bytes[at..at + 4].copy_from_slice(&80_u32.to_le_bytes()));
        std::fs::write(&path, bytes).unwrap();
        let table = table("", 1000);
        let folder = work.path().join("unpacked");
        unpack(&File::open(&path).unwrap(), &table.wheels[0], &table, &folder).unwrap_err();
        let written = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
        assert!(written.into_iter().all(|length| length <= 1001));
    }

    #[test]
    fn a_cut_wheel_is_an_error() {
        let work = tempfile::tempdir().unwrap();
        let path = work.path().join("a.whl");
        wheel(&path, &[(MAIN, &library("linux", "x86_64"))]);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        let table = table("", 1000);
        let refused = unpack(&File::open(&path).unwrap(), &table.wheels[0], &table, work.path()).unwrap_err();
        assert!(refused.contains("not a whole wheel"), "{refused}");
    }
}
