//! Builds the contents of a release: the programs with Cargo, ONNX Runtime with its script.

use super::at::at;
use super::target::{System, Target};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The root of the source tree.
pub(super) fn repository() -> &'static Path {
    // The manifest of xtask/ is one folder below it.
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Cargo as it started this program.
pub(super) fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(repository());
    cargo
}

/// Standard output of a command that must succeed.
pub(super) fn output_of(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().display().to_string();
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| format!("{name}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{name} failed ({}); its own message is above", output.status));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("{name}: its output is no text"))
}

/// Checks that this machine has everything that a release for this target is built with.
///
/// `built`: the programs exist, so no compiler is needed.
pub(super) fn check(target: &Target, built: bool) -> Result<(), String> {
    let strip = target.tool("strip");
    let package =
        if target.is_here() { "binutils".to_owned() } else { format!("gcc-{}", target.tools.trim_end_matches('-')) };
    let needed = if built || target.system == System::Windows { vec![strip] } else { vec![strip, target.tool("gcc")] };
    for tool in needed {
        let found = Command::new(&tool).arg("--version").output();
        found.map_err(|error| {
            format!("{}: {tool}: {error}; on Debian and Ubuntu: apt install {package}", target.triple)
        })?;
    }
    if built {
        return Ok(());
    }
    if target.system == System::Windows {
        let how = "`scripts/build_windows.sh ROOT DIR` builds them";
        return Err(format!("{}: expected --programs DIR; {how}", target.triple));
    }
    let folder = output_of(Command::new("rustc").args(["--print", "target-libdir", "--target", target.triple]))?;
    let folder = Path::new(folder.trim());
    let mut names = folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.file_name());
    if names.any(|name| name.to_string_lossy().starts_with("libstd-")) {
        return Ok(());
    }
    Err(format!(
        "{}: expected Rust's standard library for it in {}, found none; run `rustup target add {0}`, or leave this \
         target out",
        target.triple,
        folder.display()
    ))
}

/// Builds the programs. Returns their folder.
pub(super) fn programs(target: &Target, rtx: bool) -> Result<PathBuf, String> {
    let mut build = cargo();
    build.args(["build", "--release", "--locked"]);
    as_release(&mut build);
    if rtx && target.has_rtx() {
        build.args(["--features", "rtx"]);
    }
    let mut folder = target_folder()?;
    if !target.is_here() {
        let name = target.triple.replace('-', "_");
        build.args(["--target", target.triple]);
        build.env(format!("CARGO_TARGET_{}_LINKER", name.to_uppercase()), target.tool("gcc"));
        build.env(format!("CC_{name}"), target.tool("gcc")).env(format!("AR_{name}"), target.tool("ar"));
        folder.push(target.triple);
    }
    output_of(&mut build)?;
    Ok(folder.join("release"))
}

/// The programs of a release have the same bytes each time, and do not read this source tree
/// (`tileforge_files::installation`).
fn as_release(build: &mut Command) {
    build.args(["--config", ".cargo/release.toml"]).env("TILEFORGE_RELEASE", env!("CARGO_PKG_VERSION"));
}

/// A program or library without data for debuggers, which is most of a file. A program for Windows also loses its
/// symbol table: MinGW's linker writes it in a different order each time, and exported symbols are in another table.
pub(super) fn stripped(target: &Target, file: &Path) -> Result<Vec<u8>, String> {
    let folder = tempfile::tempdir().map_err(|error| format!("temporary folder: {error}"))?;
    let small = folder.path().join("stripped");
    let mut strip = Command::new(target.tool("strip"));
    let how = if target.system == System::Windows { "--strip-all" } else { "--strip-unneeded" };
    output_of(strip.arg(how).arg("-o").arg(&small).arg(file))?;
    std::fs::read(&small).map_err(|error| at(&small, &error))
}

/// Installs ONNX Runtime for this target, once. Returns its folder.
pub(super) fn onnxruntime(target: &Target) -> Result<PathBuf, String> {
    let folder = target_folder()?.join("onnxruntime").join(folder_name(target));
    let mut setup = Command::new("python3");
    setup.arg(repository().join("scripts/setup_onnxruntime.py"));
    setup.args(["--system", target.system_name(), "--machine", target.machine]).arg("--destination").arg(&folder);
    output_of(&mut setup)?;
    Ok(folder)
}

/// The name of a folder for one target.
fn folder_name(target: &Target) -> String {
    match target.system {
        System::Linux { .. } => target.machine.into(),
        System::Windows => format!("{}-{}", target.system_name(), target.machine),
    }
}

/// The folder in which Cargo builds.
fn target_folder() -> Result<PathBuf, String> {
    let metadata = cargo_metadata::MetadataCommand::new().current_dir(repository()).no_deps().exec();
    Ok(metadata.map_err(|error| error.to_string())?.target_directory.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `crates/files/src/installation.rs` reads the variable when it is compiled.
    #[test]
    fn a_release_is_compiled_without_this_source_tree() {
        let mut build = cargo();
        as_release(&mut build);
        let mut set = build.get_envs().filter_map(|(name, value)| value.map(|_| name.to_string_lossy().into_owned()));
        let name = set.find(|name| name == "TILEFORGE_RELEASE");
        let source = std::fs::read_to_string(repository().join("crates/files/src/installation.rs"));
        assert!(
            name.is_some_and(|name| source.is_ok_and(|source| source.contains(&format!("option_env!(\"{name}\")"))))
        );
    }
}
