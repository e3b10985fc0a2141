//! The ONNX Runtime of a release: the content of its wheel as scripts/setup_onnxruntime.py installs it.

use super::at::at;
use super::checksums::sha256;
use super::target::{System, Target};
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The library with its licences. NVIDIA's libraries, which may be installed beside it, are not included in a release.
#[derive(Debug)]
pub(super) struct OnnxRuntime {
    /// Its release, such as `1.31.1`.
    pub(super) version: String,
    /// The name of the wheel on PyPI.
    pub(super) wheel: String,
    /// The wheel's SHA-256.
    pub(super) wheel_sha256: String,
    system: System,
    /// Shared libraries by name.
    pub(super) libraries: BTreeMap<String, Vec<u8>>,
    /// Licence texts by name.
    pub(super) licences: BTreeMap<String, Vec<u8>>,
}

/// What the script records about an installation.
#[derive(Deserialize)]
struct Installed {
    version: String,
    wheel: String,
    wheels: BTreeMap<String, Wheel>,
}

#[derive(Deserialize)]
struct Wheel {
    sha256: String,
    files: BTreeMap<String, File>,
}

#[derive(Deserialize)]
struct File {
    sha256: String,
}

impl OnnxRuntime {
    /// Reads an installation and checks that its files have not changed since.
    pub(super) fn read(folder: &Path, target: &Target) -> Result<Self, String> {
        let place = folder.join("VERSION.json");
        let text = fs::read_to_string(&place)
            .map_err(|error| format!("{}; expected what scripts/setup_onnxruntime.py installs", at(&place, &error)))?;
        let mut installed: Installed = serde_json::from_str(&text).map_err(|error| at(&place, &error))?;
        let platform = match target.system {
            System::Linux { .. } => format!("_{}.whl", target.machine),
            System::Windows => "-win_amd64.whl".into(),
        };
        if !installed.wheel.ends_with(&platform) {
            let expected = format!(
                "expected ONNX Runtime for {} on {}, found {}",
                target.system_name(),
                target.machine,
                installed.wheel
            );
            return Err(at(&place, &expected));
        }
        let wheel = installed.wheels.remove(&installed.wheel);
        let wheel = wheel.ok_or_else(|| at(&place, &format!("expected the files of {}", installed.wheel)))?;
        let (mut libraries, mut licences) = (BTreeMap::new(), BTreeMap::new());
        for (path, file) in &wheel.files {
            let place = folder.join(path);
            let content = fs::read(&place).map_err(|error| at(&place, &error))?;
            let found = sha256(&content);
            if found != file.sha256 {
                let changed = format!("it has changed since it was installed: expected {}, found {found}", file.sha256);
                return Err(at(&place, &changed));
            }
            let name = path.rsplit('/').next().unwrap_or(path).to_owned();
            let kind = if path.starts_with("lib/") { &mut libraries } else { &mut licences };
            kind.insert(name, content);
        }
        let found = Self {
            version: installed.version,
            wheel: installed.wheel,
            wheel_sha256: wheel.sha256,
            system: target.system,
            libraries,
            licences,
        };
        if found.libraries.contains_key(&found.file()) && !found.licences.is_empty() {
            return Ok(found);
        }
        Err(at(&place, &format!("expected {} with its licence", found.file())))
    }

    /// The name of the library itself.
    pub(super) fn file(&self) -> String {
        match self.system {
            System::Linux { .. } => format!("libonnxruntime.so.{}", self.version),
            System::Windows => "onnxruntime.dll".into(),
        }
    }

    /// The second name under which the programs look for it, if there is one.
    pub(super) fn second_name(&self) -> Option<&'static str> {
        (self.system != System::Windows).then_some("libonnxruntime.so")
    }

    /// The record beside the libraries that `runtime setup` reads.
    pub(super) fn record(&self) -> Vec<u8> {
        let second = self.second_name().and_then(|name| Some((name, self.libraries.get(&self.file())?)));
        let libraries = self.libraries.iter().map(|(name, content)| (name.as_str(), content)).chain(second);
        let files: BTreeMap<&str, String> = libraries.map(|(name, content)| (name, sha256(content))).collect();
        let record = json!({ "origins": { &self.wheel: { "sha256": self.wheel_sha256, "files": files } } });
        format!("{record:#}\n").into_bytes()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test's way to fail

    use super::super::target;
    use super::*;

    /// An installation in the script's form, with one of NVIDIA's libraries beside it.
    fn installation(folder: &Path) {
        let wheel = "onnxruntime-1.31.1-cp311-cp311-manylinux_2_28_aarch64.whl";
        let files = |paths: &[&str]| {
            let record = |path: &&str| ((*path).to_owned(), json!({ "sha256": sha256(path.as_bytes()) }));
            json!({ "sha256": "00", "files": paths.iter().map(record).collect::<serde_json::Map<_, _>>() })
        };
        let own = ["lib/libonnxruntime.so.1.31.1", "licences/onnxruntime/LICENSE"];
        let other = ["lib/libtensorrt_rtx.so.1"];
        for path in own.iter().chain(&other) {
            fs::create_dir_all(folder.join(path).parent().unwrap()).unwrap();
            fs::write(folder.join(path), path).unwrap();
        }
        let version = json!({ "version": "1.31.1", "wheel": wheel,
            "wheels": { wheel: files(&own), "tensorrt_rtx_cu13_libs-1.whl": files(&other) } });
        fs::write(folder.join("VERSION.json"), version.to_string()).unwrap();
    }

    #[test]
    fn only_the_files_of_its_own_wheel_are_passed_on() {
        let folder = tempfile::tempdir().unwrap();
        installation(folder.path());
        let read = |triple| OnnxRuntime::read(folder.path(), target::parse(triple).unwrap());
        let found = read("aarch64-unknown-linux-gnu").unwrap();
        assert_eq!(found.libraries.keys().collect::<Vec<_>>(), ["libonnxruntime.so.1.31.1"]);
        assert_eq!(found.licences.keys().collect::<Vec<_>>(), ["LICENSE"]);
        let refused = read("x86_64-unknown-linux-gnu").unwrap_err();
        assert!(refused.contains("expected ONNX Runtime for linux on x86_64"), "{refused}");
        fs::write(folder.path().join("lib/libonnxruntime.so.1.31.1"), "other").unwrap();
        let refused = read("aarch64-unknown-linux-gnu").unwrap_err();
        assert!(refused.contains("it has changed since it was installed"), "{refused}");
        fs::remove_file(folder.path().join("VERSION.json")).unwrap();
        let refused = read("aarch64-unknown-linux-gnu").unwrap_err();
        assert!(refused.contains("expected what scripts/setup_onnxruntime.py installs"), "{refused}");
    }
}
