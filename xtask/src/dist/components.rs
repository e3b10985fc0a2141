//! The packages that the programs are compiled from, ours and others', for one target.

use super::at::at;
use super::build;
use super::target::{PROGRAMS, Target};
use cargo_metadata::{CargoOpt, DependencyKind, MetadataCommand, Package, PackageId};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

/// One package.
#[derive(Debug)]
pub(super) struct Component {
    pub(super) name: String,
    pub(super) version: String,
    /// Its licences as an SPDX expression.
    pub(super) licence: String,
    /// Where its source is; `None` for Rust's standard library.
    pub(super) folder: Option<PathBuf>,
    /// The SHA-256 of the package, from Cargo.lock.
    pub(super) sha256: Option<String>,
    /// Whether it is part of this workspace.
    pub(super) ours: bool,
    /// The references of its dependencies.
    pub(super) depends_on: BTreeSet<String>,
}

/// All packages by their references, which are package URLs.
#[derive(Debug)]
pub(super) struct Components(pub(super) BTreeMap<String, Component>);

impl Components {
    /// The packages that Cargo compiles into the programs. Packages that only build or test the programs are left out.
    pub(super) fn of(target: &Target, rtx: bool) -> Result<Self, String> {
        let mut command = MetadataCommand::new();
        let options = ["--locked", "--filter-platform", target.triple];
        command.current_dir(build::repository()).other_options(options.map(str::to_owned));
        if rtx {
            command.features(CargoOpt::SomeFeatures(vec!["tileforge-engine-builder-cli/rtx".into()]));
        }
        let metadata = command.exec().map_err(|error| error.to_string())?;
        let checksums = checksums()?;
        let packages: BTreeMap<&PackageId, &Package> = metadata.packages.iter().map(|each| (&each.id, each)).collect();
        let nodes = metadata.resolve.iter().flat_map(|resolve| &resolve.nodes).map(|node| (&node.id, node));
        let nodes: BTreeMap<_, _> = nodes.collect();
        let programs = PROGRAMS.map(|program| format!("tileforge-{}-cli", program.trim_start_matches("tileforge-")));
        let is_program = |package: &&Package| programs.iter().any(|program| *program == package.name.as_str());
        let mut open: Vec<&PackageId> = metadata.packages.iter().filter(is_program).map(|each| &each.id).collect();
        let mut components = BTreeMap::new();
        while let Some(id) = open.pop() {
            let package = packages.get(id).ok_or_else(|| format!("Cargo says nothing of {id}"))?;
            if components.contains_key(&reference(package)) {
                continue;
            }
            let dependencies = nodes.get(id).into_iter().flat_map(|node| &node.deps);
            let compiled_in = dependencies
                .filter(|dependency| dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal));
            let compiled_in: Vec<&PackageId> = compiled_in.map(|dependency| &dependency.pkg).collect();
            let names = compiled_in.iter().filter_map(|id| packages.get(id)).map(|package| reference(package));
            let component = Component { depends_on: names.collect(), ..Component::of(package, &checksums)? };
            components.insert(reference(package), component);
            open.extend(compiled_in);
        }
        let standard = Component::standard_library()?;
        components.insert(format!("pkg:generic/rust-std@{}", standard.version), standard);
        Ok(Self(components))
    }

    /// The packages of other authors.
    pub(super) fn of_others(&self) -> impl Iterator<Item = &Component> {
        self.0.values().filter(|component| !component.ours)
    }
}

impl Component {
    fn of(package: &Package, checksums: &Checksums) -> Result<Self, String> {
        let name = package.name.as_str();
        let stated = package.license.as_deref();
        let stated = stated.ok_or_else(|| format!("{name} states no licence; expected `license` in its Cargo.toml"))?;
        // Old packages write MIT/Apache-2.0.
        let licence = spdx::Expression::canonicalize(stated).map_err(|error| format!("{name}: {error}"))?;
        let version = package.version.to_string();
        Ok(Self {
            name: name.to_owned(),
            sha256: checksums.get(&(name.to_owned(), version.clone())).cloned(),
            version,
            licence: licence.unwrap_or_else(|| stated.to_owned()),
            folder: package.manifest_path.parent().map(|folder| folder.as_std_path().to_owned()),
            ours: package.source.is_none(),
            depends_on: BTreeSet::new(),
        })
    }

    /// Rust's standard library, which every program contains.
    fn standard_library() -> Result<Self, String> {
        let said = build::output_of(Command::new("rustc").arg("--version").current_dir(build::repository()))?;
        let version =
            said.split(' ').nth(1).ok_or_else(|| format!("rustc --version: expected a version, found {said}"))?;
        Ok(Self {
            name: "rust-std".into(),
            version: version.into(),
            licence: "MIT OR Apache-2.0".into(),
            folder: None,
            sha256: None,
            ours: false,
            depends_on: BTreeSet::new(),
        })
    }
}

/// The SHA-256 of packages by name and version.
type Checksums = BTreeMap<(String, String), String>;

/// The checksums in Cargo.lock for packages of other authors.
fn checksums() -> Result<Checksums, String> {
    #[derive(Deserialize)]
    struct Lock {
        package: Vec<Locked>,
    }
    #[derive(Deserialize)]
    struct Locked {
        name: String,
        version: String,
        checksum: Option<String>,
    }
    let path = build::repository().join("Cargo.lock");
    let text = std::fs::read_to_string(&path).map_err(|error| at(&path, &error))?;
    let lock: Lock = toml::from_str(&text).map_err(|error| at(&path, &error))?;
    let checksum = |each: Locked| Some(((each.name, each.version), each.checksum?));
    Ok(lock.package.into_iter().filter_map(checksum).collect())
}

/// The package URL (<https://github.com/package-url/purl-spec>).
fn reference(package: &Package) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version)
}
