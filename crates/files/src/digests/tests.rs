use super::*;
#[cfg(unix)]
use std::os::unix::fs::{PermissionsExt, symlink};

/// A file that is long and old enough for its digest to be remembered.
fn large(folder: &Path, fill: u8) -> PathBuf {
    let path = folder.join("weights");
    write(&path, fill, Duration::from_secs(100));
    path
}

fn write(path: &Path, fill: u8, age: Duration) {
    fs::write(path, vec![fill; KEPT_FROM as usize + 5]).unwrap();
    File::options().write(true).open(path).unwrap().set_modified(SystemTime::now() - age).unwrap();
}

fn expected(path: &Path) -> String {
    Sha256::digest(fs::read(path).unwrap()).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn records(folder: &Path) -> usize {
    folder.read_dir().map_or(0, Iterator::count)
}

#[test]
fn the_digest_is_that_of_all_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    for length in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 3] {
        fs::write(&path, (0..length).map(|place| (place % 251) as u8).collect::<Vec<u8>>()).unwrap();
        let found = Digests::default().of(&path).unwrap();
        assert_eq!(found, FileSha256 { bytes: length as u64, sha256: expected(&path) });
    }
    #[cfg(unix)]
    assert_eq!(
        Digests::default().of(Path::new("/dev/null")).unwrap_err().to_string(),
        "expected a regular file, found a device"
    );
}

#[cfg(unix)]
#[test]
fn a_file_is_digested_once_under_all_its_names_and_again_when_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = large(folder.path(), 1);
    let (link, second) = (folder.path().join("link"), folder.path().join("second"));
    symlink(&path, &link).unwrap();
    fs::hard_link(&path, &second).unwrap();
    let computed = Arc::new(AtomicU64::new(0));
    let counter = computed.clone();
    let digests = Digests::default().with_report(move |digesting| {
        assert!(digesting.bytes <= digesting.total);
        if digesting.bytes == digesting.total {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    });
    digests.prepare(&[path.clone(), link.clone(), second.clone()]).unwrap();
    for name in [&path, &link, &second] {
        assert_eq!(digests.clone().of(name).unwrap().sha256, expected(&path));
    }
    assert_eq!(computed.load(Ordering::Relaxed), 1);
    write(&path, 2, Duration::from_secs(50));
    assert_eq!(digests.of(&link).unwrap().sha256, expected(&path));
    assert_eq!(computed.load(Ordering::Relaxed), 2);
    let missing = folder.path().join("missing");
    let (failed, _) = digests.prepare(&[path, missing.clone()]).unwrap_err();
    assert_eq!(failed, missing);
}

#[test]
fn another_process_knows_what_was_computed_until_the_file_changes() {
    let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = large(folder.path(), 1);
    let cache = cache.path().join("digests");
    let remembering = || Digests::new(Some(cache.clone()));
    let first = remembering().of(&path).unwrap();
    assert_eq!(records(&cache), 1);
    let record = cache.read_dir().unwrap().next().unwrap().unwrap().path();
    let text = fs::read_to_string(&record).unwrap();
    // The record is used: a forged digest in it is returned.
    let forged = text.replace(&first.sha256, &"0".repeat(64));
    fs::write(&record, &forged).unwrap();
    assert_eq!(remembering().of(&path).unwrap().sha256, "0".repeat(64));
    // A record that is damaged, or of another state, is not used.
    for damaged in ["", "x", &text[..text.len() - 2], &forged.replace("bytes ", "bytes 9"), &forged.to_uppercase()] {
        fs::write(&record, damaged).unwrap();
        assert_eq!(remembering().of(&path).unwrap(), first, "{damaged:?}");
    }
    fs::write(&record, vec![b' '; RECORD_MAXIMUM_BYTES as usize + 1]).unwrap();
    assert_eq!(remembering().of(&path).unwrap(), first);
    write(&path, 2, Duration::from_secs(50));
    let second = remembering().of(&path).unwrap();
    assert_eq!(second.sha256, expected(&path));
    assert_ne!(second, first);
    // Other content of the same length and time: in the same inode, as `cp -p` writes it, and in another inode.
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    let overwrite = |path: &Path, fill| {
        fs::write(path, vec![fill; KEPT_FROM as usize + 5]).unwrap();
        File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    };
    overwrite(&path, 3);
    assert_eq!(remembering().of(&path).unwrap().sha256, expected(&path));
    let other = folder.path().join("other");
    overwrite(&other, 4);
    fs::rename(&other, &path).unwrap();
    assert_eq!(remembering().of(&path).unwrap().sha256, expected(&path));
}

#[test]
fn a_new_name_that_we_give_changes_no_digest() {
    let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = large(folder.path(), 1);
    let cache = cache.path().join("digests");
    let digests = Digests::new(Some(cache.clone()));
    let found = digests.of(&path).unwrap();
    let forge = || {
        let record = cache.read_dir().unwrap().next().unwrap().unwrap().path();
        fs::write(&record, fs::read_to_string(&record).unwrap().replace(&found.sha256, &"0".repeat(64))).unwrap();
    };
    let second = folder.path().join("second");
    fs::hard_link(&path, &second).unwrap();
    // Another program may have added that name, so the record is not used.
    assert_eq!(Digests::new(Some(cache.clone())).of(&path).unwrap(), found);
    let third = folder.path().join("third");
    fs::hard_link(&path, &third).unwrap();
    digests.has_new_name(&third);
    forge();
    // Now the record is used, as the forged digest shows, and this process still knows the digest, too.
    assert_eq!(Digests::new(Some(cache.clone())).of(&path).unwrap().sha256, "0".repeat(64));
    assert_eq!(digests.of(&third).unwrap(), found);
    // A file that was never digested, or does not exist, has no known digest.
    fs::write(folder.path().join("other"), "x").unwrap();
    digests.has_new_name(&folder.path().join("other"));
    digests.has_new_name(&folder.path().join("missing"));
}

#[cfg(unix)]
#[test]
fn what_others_could_change_and_what_just_changed_is_not_remembered() {
    let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = large(folder.path(), 1);
    let cache = cache.path().join("digests");
    let remembering = || Digests::new(Some(cache.clone()));
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    // A file that everybody may write, and a file in a folder where everybody may replace it.
    set(&path, 0o666);
    remembering().of(&path).unwrap();
    set(&path, 0o644);
    set(folder.path(), 0o777);
    remembering().of(&path).unwrap();
    set(folder.path(), 0o755);
    // A file that was changed a moment ago, or has a time in the future.
    for age in [Duration::ZERO, Duration::from_secs(1)] {
        write(&path, 1, age);
        remembering().of(&path).unwrap();
    }
    File::options().write(true).open(&path).unwrap().set_modified(SystemTime::now() + SETTLED * 100).unwrap();
    remembering().of(&path).unwrap();
    assert_eq!(records(&cache), 0);
    // Records in a folder that everybody may write are neither made nor read.
    write(&path, 1, Duration::from_secs(100));
    set(&cache, 0o777);
    remembering().of(&path).unwrap();
    assert_eq!(records(&cache), 0);
    set(&cache, 0o700);
    let known = remembering().of(&path).unwrap();
    let record = cache.read_dir().unwrap().next().unwrap().unwrap().path();
    let forged = fs::read_to_string(&record).unwrap().replace(&known.sha256, &"0".repeat(64));
    fs::write(&record, forged).unwrap();
    set(&record, 0o666);
    assert_eq!(remembering().of(&path).unwrap(), known);
}

#[test]
fn the_folder_of_records_does_not_grow_without_end() {
    let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = large(folder.path(), 1);
    for number in 0..MOST_KEPT + 7 {
        fs::write(cache.path().join(format!("1-{number:x}")), "old").unwrap();
    }
    let digests = Digests::new(Some(cache.path().to_owned()));
    digests.of(&path).unwrap();
    assert_eq!(records(cache.path()), MOST_KEPT);
    // A small file is not worth a record.
    fs::write(folder.path().join("small"), "x").unwrap();
    digests.of(&folder.path().join("small")).unwrap();
    assert_eq!(records(cache.path()), MOST_KEPT);
}

#[cfg(unix)]
#[test]
fn only_blobs_of_the_hub_cache_state_their_digest() {
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &str| folder.path().join(path);
    let (lfs, git) = ("a1".repeat(32), "a1".repeat(20));
    let repository = "models--owner--name";
    fs::create_dir_all(at(&format!("{repository}/blobs"))).unwrap();
    fs::create_dir_all(at(&format!("{repository}/snapshots/1"))).unwrap();
    fs::create_dir_all(at("blobs")).unwrap();
    for (blob, link) in [
        (format!("{repository}/blobs/{lfs}"), "weights"),
        (format!("{repository}/blobs/{git}"), "config.json"),
        (format!("{repository}/blobs/{}", lfs.to_uppercase()), "upper"),
        (format!("{repository}/blobs/{lfs}.incomplete"), "incomplete"),
        (format!("blobs/{lfs}"), "elsewhere"),
    ] {
        fs::write(at(&blob), "x").unwrap();
        symlink(at(&blob), at(&format!("{repository}/snapshots/1/{link}"))).unwrap();
    }
    let stated = |name: &str| stated_by_hub_cache(&at(&format!("{repository}/snapshots/1/{name}")));
    assert_eq!(stated("weights"), Some(lfs));
    for name in ["config.json", "upper", "incomplete", "elsewhere", "missing"] {
        assert_eq!(stated(name), None, "{name}");
    }
}
