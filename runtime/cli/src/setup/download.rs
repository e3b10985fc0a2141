//! Downloads wheels with pip and the user's pip configuration, and shows what to type if pip does not run here.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::table::Wheel;

/// Commands that may be Python 3, by their usual names on all systems.
const PYTHONS: [&[&str]; 3] = [&["python3"], &["python"], &["py", "-3"]];

/// pip's options for the wheels' tags. The libraries in the wheels do not depend on Python, so its release does not
/// matter.
const TAGS: [&str; 5] =
    ["--no-deps", "--only-binary=:all:", "--implementation=cp", "--python-version=311", "--abi=cp311"];

/// The command that downloads these wheels into the folder `wheels`, on any machine with Python.
pub(super) fn command(wheels: &[&Wheel]) -> String {
    let platforms: BTreeSet<&str> = wheels.iter().map(|wheel| wheel.platform()).collect();
    let platforms = platforms.iter().map(|platform| format!(" --platform={platform}"));
    let packages = wheels.iter().map(|wheel| format!(" {}=={}", wheel.package, wheel.version));
    format!(
        "python3 -m pip download {}{}{} --dest wheels",
        TAGS.join(" "),
        platforms.collect::<String>(),
        packages.collect::<String>()
    )
}

/// A Python that has pip; `None` if there is none.
pub(super) fn python() -> Option<Vec<&'static str>> {
    let has_pip = |python: &&&[&str]| {
        let mut asked = Command::new(python[0]);
        asked.args(&python[1..]).args(["-m", "pip", "--version"]);
        let asked = asked.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    };
    PYTHONS.iter().find(has_pip).map(|python| python.to_vec())
}

/// Downloads exactly this wheel into `folder`.
pub(super) fn download(python: &[&str], wheel: &Wheel, folder: &Path) -> Result<PathBuf, String> {
    let failed = |error: io::Error| format!("{}: {error}", python[0]);
    let requirements = folder.join("requirements.txt");
    let line = format!("{}=={} --hash=sha256:{}\n", wheel.package, wheel.version, wheel.sha256);
    std::fs::write(&requirements, line).map_err(failed)?;
    let mut pip = Command::new(python[0]);
    pip.args(&python[1..]).args(["-m", "pip", "download", "--disable-pip-version-check"]).args(TAGS);
    pip.arg(format!("--platform={}", wheel.platform()));
    pip.arg("--require-hashes").arg("--requirement").arg(&requirements).arg("--dest").arg(folder);
    // Standard output is for results.
    let status = pip.stdin(Stdio::null()).stdout(io::stderr()).status().map_err(failed)?;
    if status.success() {
        return Ok(folder.join(wheel.name()));
    }
    Err(format!(
        "pip could not fetch {}; its own message is above. Check the network and pip's settings (PIP_INDEX_URL for a \
         mirror), or download the wheels elsewhere and name their folder with --from:\n  {}",
        wheel.name(),
        command(&[wheel])
    ))
}

#[cfg(test)]
mod tests {
    use super::super::table::{Part, Table};
    use super::*;

    #[test]
    fn the_command_names_every_wheel_once() {
        let table = Table::built_in().unwrap();
        let wheels = table.wheels_for("windows", "x86_64");
        let wheels: Vec<&Wheel> =
            wheels.into_iter().filter(|wheel| [Part::Cpu, Part::OpenVino].contains(&wheel.part)).collect();
        let expected = "python3 -m pip download --no-deps --only-binary=:all: --implementation=cp \
                        --python-version=311 --abi=cp311 --platform=win_amd64 onnxruntime==1.31.1 openvino==2026.4.1 \
                        --dest wheels";
        assert_eq!(command(&wheels), expected);
    }
}
