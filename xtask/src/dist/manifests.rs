//! The manifests of a release for winget and Scoop, the package managers of Windows.
//!
//! Formats: <https://github.com/microsoft/winget-cli/tree/master/schemas/JSON/manifests/v1.10.0> and
//! <https://github.com/ScoopInstaller/Scoop/blob/master/schema.json>. `scripts/check_manifests.py` checks them.

use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write;

use super::target::PROGRAMS;
use super::version::VERSION;

/// The winget format. Newer versions add nothing that is used here, and older releases of winget refuse them.
const WINGET: &str = "1.10.0";
/// Microsoft's C++ runtime by its names in winget and Scoop. ONNX Runtime needs it, and Windows does not include it.
const CPP_RUNTIME: [&str; 2] = ["Microsoft.VCRedist.2015+.x64", "extras/vcredist2022"];
/// The package's name in winget's repository: publisher and program.
const IDENTIFIER: &str = "Tileforge.Tileforge";
const SUMMARY: &str = "Turns trained image models into engines, and runs them on pictures of any size";
const LICENCE: &str = "MIT OR Apache-2.0";

/// The manifests for an archive, by their file names.
///
/// `address`: the folder on the web where the files of the release will be. `sha256`: the archive's digest.
pub(super) fn of(address: &str, archive: &str, sha256: &str) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let address = address.trim_end_matches('/');
    if !["https://", "http://"].iter().any(|scheme| address.starts_with(scheme)) {
        return Err(format!("--url: expected an address that begins with https://, found {address}"));
    }
    let url = format!("{address}/{archive}");
    let root = archive.trim_end_matches(".zip");
    let mut made = BTreeMap::new();
    let head = |kind: &str, text: &str| {
        let schema = format!("https://aka.ms/winget-manifest.{kind}.{WINGET}.schema.json");
        let tail = format!("ManifestType: {kind}\nManifestVersion: {WINGET}\n");
        let package = format!("PackageIdentifier: {IDENTIFIER}\nPackageVersion: {}\n", quoted(VERSION));
        format!("# yaml-language-server: $schema={schema}\n\n{package}{text}{tail}").into_bytes()
    };
    made.insert(format!("{IDENTIFIER}.yaml"), head("version", "DefaultLocale: en-US\n"));
    let mut installer = String::from("InstallerType: zip\nNestedInstallerType: portable\nNestedInstallerFiles:\n");
    for program in PROGRAMS {
        let path = format!(r"{root}\bin\{program}.exe");
        // Writing to a String never fails.
        let _ = write!(installer, "- RelativeFilePath: {}\n  PortableCommandAlias: {program}\n", quoted(&path));
    }
    let _ = write!(
        installer,
        "Dependencies:\n  PackageDependencies:\n  - PackageIdentifier: {}\n\
         Installers:\n- Architecture: x64\n  InstallerUrl: {}\n  InstallerSha256: {}\n",
        CPP_RUNTIME[0],
        quoted(&url),
        sha256.to_uppercase()
    );
    made.insert(format!("{IDENTIFIER}.installer.yaml"), head("installer", &installer));
    let locale = format!(
        "PackageLocale: en-US\nPublisher: Tileforge\nPackageName: Tileforge\nPackageUrl: {}\nLicense: {LICENCE}\n\
         ShortDescription: {SUMMARY}\nTags:\n- image\n- onnx\n- upscaling\n",
        quoted(address)
    );
    made.insert(format!("{IDENTIFIER}.locale.en-US.yaml"), head("defaultLocale", &locale));
    let programs = PROGRAMS.map(|program| format!("bin/{program}.exe"));
    let scoop = json!({
        "version": VERSION,
        "description": SUMMARY,
        "homepage": address,
        "license": LICENCE.replace(" OR ", "|"),
        "architecture": { "64bit": { "url": url, "hash": sha256, "extract_dir": root } },
        "suggest": { "Microsoft Visual C++ runtime": CPP_RUNTIME[1] },
        "bin": programs,
        "notes": "`runtime setup` adds OpenVINO, and with --gpu the libraries for NVIDIA's GPUs.",
    });
    let mut text = serde_json::to_vec_pretty(&scoop).map_err(|error| error.to_string())?;
    text.push(b'\n');
    made.insert("tileforge.json".into(), text);
    Ok(made)
}

/// A text in YAML's quotation marks, which is also JSON's form.
fn quoted(text: &str) -> String {
    json!(text).to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test's way to fail

    use super::*;
    use serde_json::Value as Json;

    #[test]
    fn every_manifest_names_the_archive_with_its_digest() {
        let sha256 = "ab".repeat(32);
        let made = of("https://example.com/releases/", "tileforge-x.zip", &sha256).unwrap();
        let text = |name: &str| String::from_utf8(made[name].clone()).unwrap();
        let installer = text("Tileforge.Tileforge.installer.yaml");
        for part in [
            "InstallerUrl: \"https://example.com/releases/tileforge-x.zip\"\n",
            &format!("InstallerSha256: {}\n", "AB".repeat(32)),
            "- RelativeFilePath: \"tileforge-x\\\\bin\\\\runtime.exe\"\n  PortableCommandAlias: runtime\n",
        ] {
            assert!(installer.contains(part), "{part} in {installer}");
        }
        let scoop: Json = serde_json::from_str(&text("tileforge.json")).unwrap();
        let archive = &scoop["architecture"]["64bit"];
        assert_eq!((&archive["hash"], &archive["extract_dir"]), (&json!(sha256), &json!("tileforge-x")));
        assert_eq!(scoop["bin"].as_array().unwrap().len(), PROGRAMS.len());
        assert_eq!(made.len(), 4);
        assert!(of("example.com", "tileforge-x.zip", &sha256).unwrap_err().contains("--url"));
    }
}
