//! The Debian package: the files of a release below `/usr`.
//!
//! This code writes the package instead of dpkg-deb, so that its bytes do not depend on dpkg's release. The format:
//! deb(5), deb-control(5).

use super::content::{DOCUMENTS, Release};
use super::elf::Needs;
use super::tree::{Entry, Tree, gzip};
use super::version::VERSION;
use std::collections::BTreeSet;

const DESCRIPTION: &str = "\
Turns trained image models into engines, and runs them
 exporter turns checkpoints into ONNX graphs, engine-builder builds engines of
 them and checks each against its model, and runtime sends pictures, frames
 and tensors through engines. ONNX Runtime for the CPU is included.";

/// The version in Debian's order: `~` sorts before everything.
pub(super) fn version() -> String {
    VERSION.replacen('-', "~", 1)
}

/// The bytes of the package.
pub(super) fn package(release: &Release, architecture: &str, seconds: u64) -> Result<Vec<u8>, String> {
    let data = installed(&release.tree)?;
    let mut control = Tree::default();
    control.file("control", control_file(&release.needs, architecture, data.bytes())?);
    let mut package = ar::Builder::new(Vec::new());
    let parts = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", control.archive(".", seconds)?),
        ("data.tar.gz", data.archive(".", seconds)?),
    ];
    for (name, content) in parts {
        let mut header = ar::Header::new(name.into(), content.len() as u64);
        header.set_mode(0o100_644);
        header.set_mtime(seconds);
        package.append(&header, content.as_slice()).map_err(|error| format!("the Debian package: {error}"))?;
    }
    package.into_inner().map_err(|error| format!("the Debian package: {error}"))
}

/// The files at Debian's paths.
fn installed(tree: &Tree) -> Result<Tree, String> {
    let mut installed = Tree::default();
    for (path, entry) in &tree.0 {
        if let (true, Entry::File(page)) = (path.starts_with("share/man/"), entry) {
            let page = gzip(page).map_err(|error| format!("{path}: {error}"))?;
            installed.file(format!("usr/{path}.gz"), page);
        } else if !path.contains('/') {
            installed.add(format!("usr/{DOCUMENTS}/{path}"), entry.clone());
        } else {
            let place = path.replacen("share/zsh/site-functions/", "share/zsh/vendor-completions/", 1);
            installed.add(format!("usr/{place}"), entry.clone());
        }
    }
    let licence = |name: &str| match tree.0.get(&format!("{DOCUMENTS}/{name}")) {
        Some(Entry::File(text)) => Ok(String::from_utf8_lossy(text).into_owned()),
        _ => Err(format!("the release has no {name}")),
    };
    let copyright = format!(
        "Tileforge has either of the two licences below, at your choice. What it contains of others has the licences\n\
         in THIRD-PARTY-LICENCES.txt and in onnxruntime/.\n\n{}\n\n{}",
        licence("LICENSE-MIT")?,
        licence("LICENSE-APACHE")?
    );
    installed.file(format!("usr/{DOCUMENTS}/copyright"), copyright);
    Ok(installed)
}

fn control_file(needs: &Needs, architecture: &str, bytes: u64) -> Result<String, String> {
    let fields = [
        ("Package", "tileforge".to_owned()),
        ("Version", version()),
        ("Architecture", architecture.into()),
        ("Maintainer", "The Tileforge authors".into()),
        ("Installed-Size", bytes.div_ceil(1024).to_string()),
        ("Depends", depends(needs)?),
        // `engine-builder fetch` downloads over HTTPS.
        ("Recommends", "ca-certificates".into()),
        ("Section", "graphics".into()),
        ("Priority", "optional".into()),
        ("Description", DESCRIPTION.into()),
    ];
    Ok(fields.map(|(name, value)| format!("{name}: {value}\n")).concat())
}

/// The packages that hold the libraries.
fn depends(needs: &Needs) -> Result<String, String> {
    let (major, minor) = needs.glibc;
    let packages = needs.libraries.iter().map(|library| match library.as_str() {
        "libc.so.6"
        | "libm.so.6"
        | "libdl.so.2"
        | "libpthread.so.0"
        | "librt.so.1"
        | "ld-linux-x86-64.so.2"
        | "ld-linux-aarch64.so.1" => Ok(format!("libc6 (>= {major}.{minor})")),
        "libgcc_s.so.1" => Ok("libgcc-s1".into()),
        "libstdc++.so.6" => Ok("libstdc++6".into()),
        other => Err(format!("{other} is needed; expected its Debian package in xtask/src/dist/debian.rs")),
    });
    Ok(packages.collect::<Result<BTreeSet<String>, String>>()?.into_iter().collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test's way to fail

    use super::*;

    #[test]
    fn a_library_is_in_a_package_or_unknown() {
        let needs = |libraries: &[&str]| Needs {
            libraries: libraries.iter().map(|library| (*library).to_owned()).collect(),
            glibc: (2, 34),
        };
        let found = depends(&needs(&["libm.so.6", "libc.so.6", "libstdc++.so.6", "libgcc_s.so.1"])).unwrap();
        assert_eq!(found, "libc6 (>= 2.34), libgcc-s1, libstdc++6");
        assert!(depends(&needs(&["libssl.so.3"])).unwrap_err().contains("libssl.so.3 is needed"));
    }
}
