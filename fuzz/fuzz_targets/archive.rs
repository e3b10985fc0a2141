//! Any archive is an engine or is refused, and nothing is written beside the engine's place.
#![cfg_attr(fuzzing, no_main)]

use std::fs;

use arbitrary::Arbitrary;
#[cfg(fuzzing)]
use libfuzzer_sys::fuzz_target;
use tileforge_engine::archive::unpack;

#[derive(Arbitrary, Debug)]
struct Entry {
    name: Vec<u8>,
    kind: u8,
    /// What a link leads to.
    link: Vec<u8>,
    /// The length that the header claims, where that is not the real one.
    claimed: Option<u64>,
    content: Vec<u8>,
    /// The content is a valid manifest, and the name is one that engines have.
    manifest: bool,
}

const MANIFEST: &[u8] = include_bytes!("../seeds/manifest/compact-x4.json");

fuzz_target!(|entries: Vec<Entry>| {
    let work = tempfile::tempdir().expect("a temporary folder");
    let (archive, engine) = (work.path().join("engine.tar"), work.path().join("engine"));
    let mut bytes: Vec<u8> = entries.iter().flat_map(written).collect();
    bytes.extend([0; 1024]);
    fs::write(&archive, bytes).expect("a file in a temporary folder");
    let unpacked = unpack(&archive, &engine, None).is_ok();
    let names = fs::read_dir(work.path()).expect("the folder").count();
    assert_eq!(names, 1 + usize::from(unpacked), "something else was written");
});

fn written(entry: &Entry) -> Vec<u8> {
    let name = if entry.manifest { b"engine/manifest.json" } else { entry.name.as_slice() };
    let content = if entry.manifest { MANIFEST } else { &entry.content };
    let mut header = [0; 512];
    let length = name.len().min(100);
    header[..length].copy_from_slice(&name[..length]);
    header[100..108].copy_from_slice(b"0000644\0");
    header[124] = 0x80;
    header[128..136].copy_from_slice(&entry.claimed.unwrap_or(content.len() as u64).to_be_bytes());
    header[156] = if entry.manifest { b'0' } else { entry.kind };
    let length = entry.link.len().min(100);
    header[157..157 + length].copy_from_slice(&entry.link[..length]);
    header[257..265].copy_from_slice(b"ustar  \0");
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut bytes = [&header, content].concat();
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}
