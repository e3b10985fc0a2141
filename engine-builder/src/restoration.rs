//! Models that restore films: an autoencoder of clips, a transformer of their latents, and the text that it always gets.

use crate::pipeline::{Beside, BesideFile};
use crate::{Error, ModelFile, RestorationFile, Result, Source, WeightFolders};
use safetensors::tensor::TensorView;
use std::collections::BTreeMap;
use std::path::Path;
use tileforge_contract::{Contract, Embedding, Extent, Meaning, TensorSpec};
use tileforge_engine::Restoration;
use tileforge_exporter::Checkpoint;
use tileforge_runtime::restoration::text_states;
use tileforge_session::safetensors_type;

/// The file of the text's states in an engine, and the name of its tensor.
const TEXT: &str = "text.safetensors";
const STATES: &str = "text_states";

/// The networks of a model that restores films, in sizes that fit each other, and what stands beside them.
///
/// # Errors
/// A network is missing or does not fit the others; the text is missing, or is none of the transformer's.
pub(crate) fn of_model(
    model: &ModelFile,
    restoration: &RestorationFile,
    parts: BTreeMap<String, Source>,
    weights: &WeightFolders,
) -> Result<(BTreeMap<String, Source>, Beside)> {
    let place = &model.path;
    let contracts = || parts.iter().map(|(name, source)| (name, source.contract()));
    let mut transformers = contracts().filter_map(|(name, contract)| Some((name.clone(), Transformer::of(contract)?)));
    let (Some((name, transformer)), None) = (transformers.next(), transformers.next()) else {
        return Err(Error::input(place, "expected one graph of a transformer that restores latent clips"));
    };
    drop(transformers);
    let mut decoders = contracts().filter_map(|(_, contract)| Decoder::of(contract));
    let decoder = decoders.next().ok_or_else(|| Error::input(place, "expected a graph that decodes latent clips"))?;
    drop(decoders);
    if decoder.channels != transformer.channels {
        let (expected, found) = (transformer.channels, decoder.channels);
        let reason = format!("expected an autoencoder of latents of {expected} channels, found {found}");
        return Err(Error::input(place, reason));
    }
    let text = weights.file(model, &restoration.text)?;
    let (tokens, bytes) = states(&text, transformer.width)?;
    let of_part = |(part, source): (String, Source)| {
        let source = if part == name {
            let source = source.with_latent_frames(decoder.frames);
            source.with_runs(vec![1], vec![tokens], decoder.pixels)
        } else {
            source
        };
        (part, source)
    };
    let beside = Beside {
        restoration: Some(Restoration { text: TEXT.into() }),
        files: BTreeMap::from([(TEXT.to_owned(), BesideFile::Made { of: text, bytes })]),
        ..Beside::default()
    };
    Ok((parts.into_iter().map(of_part).collect(), beside))
}

/// What must fit of the transformer.
struct Transformer {
    /// Channels of a latent frame.
    channels: usize,
    /// Width of a state of the text.
    width: usize,
}

impl Transformer {
    /// That of a contract; `None` for another network.
    fn of(contract: &Contract) -> Option<Self> {
        let channels = contract.inputs.iter().find_map(|input| match input.meaning {
            Meaning::NoisyLatent { latent, condition, .. } if condition > 0 => input.frames().map(|_| latent),
            _ => None,
        })?;
        let is_text = |input: &&TensorSpec| input.meaning == Meaning::Embedding { from: Embedding::Context };
        let width = contract.inputs.iter().find(is_text)?.channels()?;
        Some(Self { channels, width })
    }
}

/// What must fit of the decoder of a clip's beginning.
struct Decoder {
    channels: usize,
    /// Pixels for each row and column of a latent frame.
    pixels: usize,
    /// How frames follow from latent frames.
    frames: Extent,
}

impl Decoder {
    /// That of a contract; `None` for another network, and for the decoder of later chunks.
    fn of(contract: &Contract) -> Option<Self> {
        if contract.carried().next().is_some() {
            return None;
        }
        let latent = contract.inputs.iter().find(|input| matches!(input.meaning, Meaning::Latent { .. }))?;
        let pixels = contract.outputs.iter().find(|output| matches!(output.meaning, Meaning::Pixels { .. }))?;
        let step = |tensor: &TensorSpec| tensor.height().map(|side| side.step);
        Some(Self {
            channels: latent.channels()?,
            pixels: step(pixels)?.checked_div(step(latent)?)?,
            frames: pixels.frames()?,
        })
    }
}

/// The number of tokens of a text's states, and the states as a file of an engine has them.
fn states(path: &Path, width: usize) -> Result<(usize, Vec<u8>)> {
    let checkpoint = Checkpoint::open(path)?;
    let found: Vec<_> = checkpoint.tensors().values().collect();
    let [states] = found.as_slice() else {
        return Err(Error::input(path, format!("expected the states of a text, found {} tensors", found.len())));
    };
    let bytes = states.to_bytes()?;
    let damaged = |error: safetensors::SafeTensorError| Error::input(path, error.to_string());
    let view = TensorView::new(safetensors_type(states.data_type()), states.dims().to_vec(), &bytes);
    let file = safetensors::serialize([(STATES, view.map_err(damaged)?)], None).map_err(damaged)?;
    // As whatever runs the engine reads it.
    let (_, tokens) = text_states(&file, width).map_err(|problem| Error::input(path, problem))?;
    Ok((tokens, file))
}
