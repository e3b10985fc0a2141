//! Which wheels have the libraries that engines run with: one table, which `scripts/setup_onnxruntime.py` reads, too.

use std::collections::BTreeMap;

use glob::Pattern;
use serde::Deserialize;

const TABLE: &str = include_str!("libraries.json");

/// All wheels that are known, for all systems.
#[derive(Debug, Deserialize)]
pub(super) struct Table {
    /// Patterns of names of licence texts, in lower-case letters.
    licences: Vec<String>,
    pub(super) wheels: Vec<Wheel>,
}

/// What a wheel is for.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Part {
    /// ONNX Runtime for processors.
    Cpu,
    /// OpenVINO, for processors.
    OpenVino,
    /// ONNX Runtime for GPUs, and NVIDIA's libraries for CUDA.
    Gpu,
    /// TensorRT for RTX.
    Rtx,
    /// The provider that runs plans of TensorRT for RTX.
    Provider,
}

/// One wheel, and which of its members are installed.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Wheel {
    pub(super) part: Part,
    /// As [`std::env::consts::OS`].
    pub(super) system: String,
    /// As [`std::env::consts::ARCH`].
    pub(super) machine: String,
    pub(super) package: String,
    pub(super) version: String,
    /// `python-abi-platform`, the tail of the wheel's name. A build number may come before them.
    tags: String,
    /// In lower-case hexadecimal digits.
    pub(super) sha256: String,
    /// Patterns of member paths.
    libraries: Vec<String>,
    /// A pattern of names that are left out, because they are large and not needed.
    #[serde(default)]
    without: String,
    /// Additional names of a library.
    #[serde(default)]
    pub(super) second_names: BTreeMap<String, String>,
    /// The most bytes that its installed files take.
    pub(super) installed_bytes: u64,
}

/// Where a member is installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A library, under its name.
    Library(String),
    /// A licence text, by its path below the installation.
    Licence(String),
}

impl Table {
    /// The table that this program was compiled with.
    pub(super) fn built_in() -> Result<Self, String> {
        serde_json::from_str(TABLE).map_err(|error| format!("the list of libraries in this program: {error}"))
    }

    /// The wheels for a system and a machine.
    pub(super) fn wheels_for(&self, system: &str, machine: &str) -> Vec<&Wheel> {
        self.wheels.iter().filter(|wheel| wheel.system == system && wheel.machine == machine).collect()
    }

    /// Where a member of a wheel is installed; `None`: nowhere.
    pub(super) fn place(&self, wheel: &Wheel, member: &str) -> Option<Place> {
        let name = member.rsplit('/').next().unwrap_or(member);
        if wheel.libraries.iter().any(|pattern| matches(pattern, member)) && !matches(&wheel.without, name) {
            return Some(Place::Library(name.to_owned()));
        }
        let lower = name.to_lowercase();
        let is_licence = self.licences.iter().any(|pattern| matches(pattern, &lower));
        is_licence.then(|| Place::Licence(format!("licences/{}/{name}", wheel.package)))
    }
}

impl Wheel {
    /// The name of its file.
    pub(super) fn name(&self) -> String {
        format!("{}-{}-{}.whl", self.file_package(), self.version, self.tags)
    }

    /// The package as names of files have it.
    pub(super) fn file_package(&self) -> String {
        self.package.replace('-', "_")
    }

    /// The platform as pip takes it: the first of several.
    pub(super) fn platform(&self) -> &str {
        let tag = self.tags.rsplit('-').next().unwrap_or_default();
        tag.split('.').next().unwrap_or(tag)
    }

    /// Whether one of its libraries may have this name.
    pub(super) fn has_library(&self, name: &str) -> bool {
        let patterns = self.libraries.iter().map(|pattern| pattern.rsplit('/').next().unwrap_or(pattern));
        patterns.into_iter().any(|pattern| matches(pattern, name)) && !matches(&self.without, name)
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    Pattern::new(pattern).is_ok_and(|pattern| pattern.matches(name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn wheel<'t>(table: &'t Table, system: &str, package: &str) -> &'t Wheel {
        let found = table.wheels_for(system, "x86_64").into_iter().find(|wheel| wheel.package == package);
        found.unwrap_or_else(|| panic!("no {package} for {system}"))
    }

    #[test]
    fn the_table_is_whole() {
        let table = Table::built_in().unwrap();
        let digest =
            |wheel: &Wheel| wheel.sha256.len() == 64 && wheel.sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(table.wheels.iter().all(digest));
        assert_eq!(table.wheels.iter().map(|wheel| &wheel.sha256).collect::<BTreeSet<_>>().len(), table.wheels.len());
        for (system, machine) in [("linux", "x86_64"), ("linux", "aarch64"), ("windows", "x86_64")] {
            for part in [Part::Cpu, Part::OpenVino] {
                let found = table.wheels_for(system, machine).into_iter().filter(|wheel| wheel.part == part).count();
                assert_eq!(found, 1, "{part:?} for {system} on {machine}");
            }
        }
        // The same releases on every system: an engine that is built on one runs on another.
        let mut versions: Vec<(&str, &str)> =
            table.wheels.iter().map(|wheel| (wheel.package.as_str(), wheel.version.as_str())).collect();
        versions.sort_unstable();
        versions.dedup();
        let packages: BTreeSet<&str> = versions.iter().map(|(package, _)| *package).collect();
        assert_eq!(packages.len(), versions.len(), "{versions:?}");
        for pattern in table.wheels.iter().flat_map(|wheel| wheel.libraries.iter().chain([&wheel.without])) {
            assert!(Pattern::new(pattern).is_ok(), "{pattern}");
        }
    }

    #[test]
    fn libraries_and_licences_have_their_places() {
        let table = Table::built_in().unwrap();
        let library = |name: &str| Some(Place::Library(name.to_owned()));
        let place = |system: &str, package: &str, member: &str| table.place(wheel(&table, system, package), member);
        let dll = "onnxruntime/capi/onnxruntime.dll";
        assert_eq!(place("windows", "onnxruntime", dll), library("onnxruntime.dll"));
        assert_eq!(place("linux", "onnxruntime", dll), None);
        assert_eq!(place("windows", "onnxruntime", "onnxruntime/capi/onnxruntime_pybind11_state.pyd"), None);
        let alternative = "nvidia/cu13/bin/x86_64/nvrtc64_130_0.alt.dll";
        assert_eq!(place("windows", "nvidia-cuda-nvrtc", alternative), None);
        let licence = "openvino-2026.4.1.dist-info/licenses/LICENSE";
        let expected = Some(Place::Licence("licences/openvino/LICENSE".into()));
        assert_eq!(place("windows", "openvino", licence), expected);
        assert!(wheel(&table, "windows", "openvino").has_library("tbb12.dll"));
        assert!(!wheel(&table, "windows", "openvino").has_library("kernel32.dll"));
    }

    #[test]
    fn a_wheel_has_the_name_that_pip_gives_it() {
        let table = Table::built_in().unwrap();
        let gpu = wheel(&table, "windows", "onnxruntime-gpu");
        assert_eq!(gpu.name(), "onnxruntime_gpu-1.31.1-cp311-cp311-win_amd64.whl");
        assert_eq!(gpu.platform(), "win_amd64");
        assert_eq!(wheel(&table, "linux", "nvidia-cuda-runtime").platform(), "manylinux2014_x86_64");
    }
}
