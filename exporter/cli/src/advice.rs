//! What the user can do about an error. The library's errors describe its domain; flags are named only here.

use std::io::ErrorKind;
use std::path::Path;
use tileforge_exporter::checkpoint::FormatKind;
use tileforge_exporter::{Error, MissingHyperparameter};

/// What to do next, where that is known.
pub(super) fn on(error: &Error) -> Option<String> {
    Some(match error {
        Error::OtherFormat { path, found } => return other_format(path, found.kind),
        Error::UnknownArchitecture { .. } => {
            "`exporter inspect -v` compares it with every architecture, and CONTRIBUTING.md says how to add one".into()
        }
        Error::Tensors { .. } => "`exporter inspect` shows what was detected".into(),
        Error::Hyperparameters { missing: Some(missing), .. } => set(missing),
        Error::UnknownHyperparameter { name, .. } => {
            format!("leave out `--set {name}=…`; `exporter inspect` lists the hyperparameters")
        }
        Error::SeveralGraphs { tasks, .. } => {
            let flags: Vec<String> = tasks.iter().map(|task| format!("`--component {task}`")).collect();
            format!("choose one with {}", flags.join(" or "))
        }
        Error::NoSuchComponent { .. } => "give one of these with `--component NAME`".into(),
        Error::UnsupportedComponent { .. } | Error::ForeignTensors { .. } => {
            "choose each component with `--component NAME`".into()
        }
        Error::OneGraphPerFile { .. } => "choose one with `--component NAME`, or give a folder with `-o`".into(),
        Error::NoWeights { found, .. } => format!("choose the weights with `--variant {}`", variant(found)?),
        Error::Shape { input, .. } => format!("change the sizes in `--shapes {input}:…`"),
        Error::NeedsFixedShape { input, example, .. } => {
            let sizes: Vec<String> = example.iter().map(ToString::to_string).collect();
            format!("give one, as in `--shapes {input}:{}`", sizes.join("x"))
        }
        Error::File { path, source, .. } if source.kind() == ErrorKind::NotFound => model(path)?,
        Error::ImageTooSmall { .. } => "give larger sizes with `--shapes`".into(),
        Error::NoSuchInput { .. } => "give one of these with `--shapes NAME:SIZExSIZE…`".into(),
        _ => return None,
    })
}

/// What to do with a file that is not a checkpoint.
fn other_format(path: &Path, kind: FormatKind) -> Option<String> {
    Some(match kind {
        FormatKind::Picture => format!("`runtime infer {}` enlarges it with an engine", path.display()),
        FormatKind::Film => "`runtime infer` enlarges the frames of Y4M films with an engine".into(),
        FormatKind::Graph => {
            format!("it needs no export: `engine-builder build {}` makes an engine of it", path.display())
        }
        FormatKind::Arrays => "`runtime run` gives tensors to an engine".into(),
        FormatKind::Text if path.extension().is_some_and(|extension| extension == "yaml") => {
            format!("`engine-builder build {}` makes an engine of a model file", path.display())
        }
        FormatKind::Converted | FormatKind::Archive | FormatKind::Placeholder | FormatKind::Text => return None,
    })
}

/// What to do with the name of a model: this program takes only files.
fn model(path: &Path) -> Option<String> {
    let name = path.to_str().filter(|name| tileforge_files::is_plain(name) && !name.contains('.'))?;
    Some(format!(
        "for a model's name, `engine-builder fetch {name}` says where its weights are, and `engine-builder build {name}` \
         builds its engine"
    ))
}

fn set(MissingHyperparameter { name, values }: &MissingHyperparameter) -> String {
    let flags: Vec<String> = values.iter().map(|value| format!("`--set {name}={value}`")).collect();
    format!("set it, as in {}", flags.join(" or "))
}

/// The variant of the first weights that have one: `fp16` of `model.fp16.safetensors`.
fn variant(files: &[String]) -> Option<&str> {
    files.iter().find_map(|file| {
        let stem = file.strip_suffix(".safetensors").or_else(|| file.strip_suffix(".bin"))?;
        // Shards are numbered: `model.fp16-00001-of-00002`.
        let variant = Path::new(stem).extension()?.to_str()?;
        variant.split('-').next().filter(|variant| !variant.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variant_is_read_from_the_names() {
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            variant(&names).map(str::to_owned)
        };
        assert_eq!(of(&["model.bin", "model.fp16.safetensors"]), Some("fp16".into()));
        assert_eq!(of(&["diffusion_pytorch_model.bf16-00001-of-00002.safetensors"]), Some("bf16".into()));
        assert_eq!(of(&["pytorch_model.fp16.bin"]), Some("fp16".into()));
        assert_eq!(of(&["pytorch_model.bin", "other.safetensors"]), None);
    }

    #[test]
    fn every_value_of_a_missing_hyperparameter_is_a_flag() {
        let missing = MissingHyperparameter { name: "activation", values: &["relu", "leakyrelu"] };
        assert_eq!(set(&missing), "set it, as in `--set activation=relu` or `--set activation=leakyrelu`");
    }
}
