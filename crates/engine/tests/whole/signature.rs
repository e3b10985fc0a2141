//! Keys and signatures.

use crate::small_engine::{manifest, text, write};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tileforge_engine::signature::{SIGNATURE_FILE, keygen, sign};
use tileforge_engine::{Bundle, Engine, Error, MANIFEST_FILE, PublicKey};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_new_key_is_private_and_replaces_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let keys = keygen(&folder.path().join("release.2026")).unwrap();
    assert_eq!(keys.private, folder.path().join("release.2026.key"));
    assert_eq!(keys.public, folder.path().join("release.2026.pub"));
    assert_eq!((mode(&keys.private), mode(&keys.public)), (0o600, 0o644));
    let before = fs::read(&keys.private).unwrap();
    for left in [&keys.public, &keys.private] {
        let error = text(keygen(&folder.path().join("release.2026")).unwrap_err());
        assert!(error.contains("the file exists"), "{error}");
        assert_eq!(fs::read(&keys.private).unwrap_or_else(|_| before.clone()), before);
        fs::remove_file(left).unwrap();
    }
    // Two keys are never the same.
    let again = keygen(&folder.path().join("release.2026")).unwrap();
    assert_ne!(fs::read(again.private).unwrap(), before);
}

#[test]
fn a_key_file_is_what_it_is_used_for() {
    let folder = tempfile::tempdir().unwrap();
    let keys = keygen(&folder.path().join("key")).unwrap();
    let refused = |path: &Path| match PublicKey::read(path) {
        Err(Error::Key { kind: "public", found, .. }) => found,
        other => format!("{other:?}"),
    };
    assert!(refused(&keys.private).contains("a private key"));
    fs::write(folder.path().join("text"), "hello").unwrap();
    assert!(refused(&folder.path().join("text")).contains("something else"));
    fs::write(folder.path().join("bytes"), [0xff, 0xfe]).unwrap();
    assert!(refused(&folder.path().join("bytes")).contains("no text"));
    // A file that cannot be read is not reported as too long. The beginning of a process's memory is not mapped, so it
    // cannot be read.
    let unreadable = text(PublicKey::read(Path::new("/proc/self/mem")).unwrap_err());
    assert!(unreadable.contains("cannot read") && !unreadable.contains("bytes"), "{unreadable}");
    for (bits, is_fine) in [(0o644, true), (0o664, true), (0o646, false), (0o602, false)] {
        fs::set_permissions(&keys.public, Permissions::from_mode(bits)).unwrap();
        assert_eq!(PublicKey::read(&keys.public).is_ok(), is_fine, "{bits:o}");
    }
    // Larger than any key.
    let pad = |length: usize| {
        let mut text = fs::read(&keys.public).unwrap();
        text.resize(length, b'\n');
        let path = folder.path().join("padded");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        PublicKey::read(&path)
    };
    fs::set_permissions(&keys.public, Permissions::from_mode(0o644)).unwrap();
    assert_eq!(pad(1 << 14).unwrap(), PublicKey::read(&keys.public).unwrap());
    assert!(matches!(pad((1 << 14) + 1), Err(Error::Key { .. })));
}

#[test]
fn a_signature_covers_the_manifest_and_needs_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let directory = write(folder.path(), &manifest("x2"));
    let keys = keygen(&folder.path().join("key")).unwrap();
    let key = PublicKey::read(&keys.public).unwrap();
    let refused = || text(Engine::open_of(&directory, Some(&key)).unwrap_err());
    assert!(refused().contains("a signature is required"), "{}", refused());

    let engine = Bundle::open(&directory).unwrap();
    for bits in [0o640, 0o604, 0o620, 0o610] {
        fs::set_permissions(&keys.private, Permissions::from_mode(bits)).unwrap();
        let error = text(sign(&engine, &keys.private).unwrap_err());
        assert!(error.contains(&format!("mode {bits:o}")), "{error}");
    }
    for bits in [0o400, 0o600, 0o700] {
        fs::set_permissions(&keys.private, Permissions::from_mode(bits)).unwrap();
        sign(&engine, &keys.private).unwrap();
    }
    assert!(matches!(sign(&engine, &keys.public), Err(Error::Key { kind: "private", .. })));
    Engine::open_of(&directory, Some(&key)).unwrap();

    let place = directory.join(SIGNATURE_FILE);
    let good = fs::read(&place).unwrap();
    assert_eq!(good.len(), 64);
    let mut flipped = good.clone();
    flipped[40] ^= 1;
    fs::write(&place, flipped).unwrap();
    assert!(refused().contains("not one of this key over this manifest"), "{}", refused());
    fs::write(&place, &good[..63]).unwrap();
    assert!(refused().contains("expected the 64 bytes of a signature"), "{}", refused());
    fs::write(&place, vec![0; 1025]).unwrap();
    assert!(refused().contains("1024"), "{}", refused());
    fs::write(&place, &good).unwrap();
    let path = directory.join(MANIFEST_FILE);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text + " ").unwrap();
    assert!(refused().contains("not one of this key over this manifest"), "{}", refused());

    // An engine with a file that the manifest does not list is not signed.
    fs::write(directory.join("additional"), "x").unwrap();
    assert!(matches!(sign(&engine, &keys.private), Err(Error::Unlisted { .. })));
}
