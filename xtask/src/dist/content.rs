//! The files of a release, and their paths.
//!
//! The folders are those below `/usr` or `/usr/local`, so the archive can also be unpacked there.

use super::at::at;
use super::build::{self, output_of, repository};
use super::components::Components;
use super::elf::Needs;
use super::licences;
use super::onnxruntime::OnnxRuntime;
use super::pe;
use super::target::{PROGRAMS, System, Target};
use super::tree::{Entry, Tree};
use super::version::VERSION;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The folder of ONNX Runtime, where the programs look for it.
const LIBRARIES: &str = "lib/tileforge";
/// The folder of profiles and models, where `engine-builder` looks for them.
const DATA: &str = "share/tileforge";
/// The folder of all documents.
pub(super) const DOCUMENTS: &str = "share/doc/tileforge";

/// The first file for readers of an unpacked archive.
const README: &str = include_str!("../../../packaging/README.md");
/// The same file on Windows.
const README_WINDOWS: &str = include_str!("../../../packaging/README-windows.md");

/// The files of a release for one target.
#[derive(Debug)]
pub(super) struct Release {
    pub(super) tree: Tree,
    /// The libraries and releases of the system that it needs.
    pub(super) needs: Needs,
}

/// The files that the programs print, by system.
#[derive(Debug, Default)]
pub(super) struct Spoken {
    linux: Tree,
    windows: Tree,
}

impl Spoken {
    fn of(&self, target: &Target) -> &Tree {
        match target.system {
            System::Linux { .. } => &self.linux,
            System::Windows => &self.windows,
        }
    }
}

/// The files that the programs of this machine print: completions and manual pages. They are the same for every
/// target.
pub(super) fn spoken_by(programs: &Path) -> Result<Spoken, String> {
    let mut spoken = Spoken::default();
    for name in PROGRAMS {
        let said = |arguments: &[&str]| output_of(Command::new(programs.join(name)).args(arguments));
        let windows = format!("share/powershell/{name}.ps1");
        spoken.windows.file(windows, said(&["completions", "powershell"])?);
        let tree = &mut spoken.linux;
        tree.file(format!("share/bash-completion/completions/{name}"), said(&["completions", "bash"])?);
        tree.file(format!("share/fish/vendor_completions.d/{name}.fish"), said(&["completions", "fish"])?);
        tree.file(format!("share/zsh/site-functions/_{name}"), said(&["completions", "zsh"])?);
        let pages: BTreeMap<String, String> = serde_json::from_str(&said(&["manual"])?)
            .map_err(|error| at(&programs.join(name), &format!("its manual pages: {error}")))?;
        for (page, text) in pages {
            tree.file(format!("share/man/man1/{page}"), text);
        }
    }
    Ok(spoken)
}

/// All files of a release.
pub(super) fn of(
    target: &Target,
    programs: &Path,
    library: &OnnxRuntime,
    components: &Components,
    spoken: &Spoken,
    materials: &[u8],
    seconds: u64,
) -> Result<Release, String> {
    let mut tree = spoken.of(target).clone();
    let mut needs = Needs::default();
    let mut check = |name: &str, bytes: &[u8]| match target.system {
        System::Linux { .. } => needs.add(name, bytes, target),
        System::Windows => match pe::imports(name, bytes, target)?.iter().find(|library| pe::of_a_compiler(library)) {
            Some(library) => Err(format!("{name}: it needs {library}, which is of its compiler and not of Windows")),
            None => Ok(()),
        },
    };
    let ending = if target.system == System::Windows { ".exe" } else { "" };
    for name in PROGRAMS {
        let program = build::stripped(target, &programs.join(format!("{name}{ending}")))?;
        check(name, &program)?;
        let program = match target.system {
            System::Linux { .. } => program,
            System::Windows => pe::with_date(name, program, target, seconds)?,
        };
        tree.add(format!("bin/{name}{ending}"), Entry::Program(program));
    }
    for (name, content) in &library.libraries {
        // The other libraries are loaded only if the GPU libraries that they need are present.
        if *name == library.file() {
            check(name, content)?;
        }
        tree.file(format!("{LIBRARIES}/{name}"), content.clone());
    }
    if let Some(second) = library.second_name() {
        tree.add(format!("{LIBRARIES}/{second}"), Entry::Link(library.file()));
    }
    tree.file(format!("{LIBRARIES}/tileforge-setup.json"), library.record());
    for (name, content) in &library.licences {
        tree.file(format!("{DOCUMENTS}/onnxruntime/{name}"), content.clone());
    }
    for folder in ["profiles", "profiles/families", "models"] {
        for name in yaml_files(&repository().join(folder))? {
            tree.file(format!("{DATA}/{folder}/{name}"), read(&format!("{folder}/{name}"))?);
        }
    }
    // The only model with our own weights, and a picture to try it with.
    tree.file(format!("{DATA}/models/compact-x4.safetensors"), read("models/compact-x4.safetensors")?);
    tree.file(format!("{DATA}/coffee.png"), read("tests/images/coffee.png")?);
    for name in ["CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"] {
        tree.file(format!("{DOCUMENTS}/{name}"), read(name)?);
    }
    if target.system != System::Windows {
        tree.file("lib/systemd/system/tileforge-server.service", read("packaging/tileforge-server.service")?);
    }
    tree.file(format!("{DOCUMENTS}/THIRD-PARTY-LICENCES.txt"), licences::of(components)?);
    tree.file(format!("{DOCUMENTS}/tileforge.cdx.json"), materials);
    let (major, minor) = needs.glibc;
    let words = [("{version}", VERSION.to_owned()), ("{target}", target.triple.into())];
    let words =
        words.into_iter().chain([("{glibc}", format!("{major}.{minor}")), ("{onnxruntime}", library.version.clone())]);
    let readme = if target.system == System::Windows { README_WINDOWS } else { README };
    let readme = words.fold(readme.to_owned(), |text, (word, value)| text.replace(word, &value));
    tree.file("README.md", readme);
    Ok(Release { tree, needs })
}

/// A file of the source tree.
fn read(path: &str) -> Result<Vec<u8>, String> {
    let path = repository().join(path);
    fs::read(&path).map_err(|error| at(&path, &error))
}

/// The names of the YAML files in a folder, sorted.
fn yaml_files(folder: &Path) -> Result<Vec<String>, String> {
    let entries = folder.read_dir().map_err(|error| at(folder, &error))?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".yaml")).collect();
    names.sort();
    Ok(names)
}
