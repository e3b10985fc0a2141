//! Models that restore films: an autoencoder of clips, a transformer of their latents, and the fixed text of the
//! transformer.

use crate::pipeline::{PipelineExtras, PipelineFile};
use crate::{Error, ModelFile, RestorationFile, Result, Source, WeightFolders};
use safetensors::tensor::TensorView;
use std::collections::BTreeMap;
use std::path::Path;
use tileforge_contract::{Contract, Extent};
use tileforge_engine::Restoration;
use tileforge_exporter::Checkpoint;
use tileforge_runtime::autoencoder::{Clips, Direction, direction_of};
use tileforge_runtime::restoration::{Widths, text_states};
use tileforge_session::safetensors_type;

/// The file of the text's states in an engine, and the name of its tensor.
const TEXT: &str = "text.safetensors";
const STATES: &str = "text_states";

/// The networks of a film-restoring model, in sizes that fit together, and the files beside them.
///
/// # Errors
/// A network is missing or does not fit the others; the text is missing or does not suit the transformer.
pub(crate) fn of_model(
    model: &ModelFile,
    restoration: &RestorationFile,
    parts: BTreeMap<String, Source>,
    weights: &WeightFolders,
) -> Result<(BTreeMap<String, Source>, PipelineExtras)> {
    let place = &model.path;
    let contracts = || parts.iter().map(|(name, source)| (name, source.contract()));
    let mut transformers = contracts().filter_map(|(name, contract)| Some((name.clone(), Widths::of(contract)?)));
    let (Some((name, widths)), None) = (transformers.next(), transformers.next()) else {
        return Err(Error::input(place, "expected one graph of a transformer that restores latent clips"));
    };
    drop(transformers);
    let decoder = contracts().find_map(|(_, contract)| decoder_of(contract));
    let (clips, frames) = decoder.ok_or_else(|| Error::input(place, "expected a graph that decodes latent clips"))?;
    if clips.latent_channels != widths.latent {
        let (expected, found) = (widths.latent, clips.latent_channels);
        let reason = format!("expected an autoencoder of latents of {expected} channels, found {found}");
        return Err(Error::input(place, reason));
    }
    let text = weights.file(model, &restoration.text)?;
    let (tokens, bytes) = states(&text, widths.text)?;
    let of_part = |(part, source): (String, Source)| {
        let source = if part == name {
            let source = source.with_latent_frames(frames);
            source.with_runs(vec![1], vec![tokens], clips.factor)
        } else {
            source
        };
        (part, source)
    };
    let extras = PipelineExtras {
        restoration: Some(Restoration { text: TEXT.into() }),
        files: BTreeMap::from([(TEXT.to_owned(), PipelineFile::Made { of: text, bytes })]),
        ..PipelineExtras::default()
    };
    Ok((parts.into_iter().map(of_part).collect(), extras))
}

/// The decoder of a clip's first chunk, and how frames follow from latent frames; `None` for other networks, and for
/// the decoder of later chunks.
fn decoder_of(contract: &Contract) -> Option<(Clips, Extent)> {
    let is_first = direction_of(contract) == Some(Direction::Decode) && contract.carried().next().is_none();
    let clips = Clips::of(contract).filter(|_| is_first)?;
    Some((clips, clips.frames?))
}

/// The number of tokens of a text's states, and the states in the form of an engine's file.
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
    // Read in the same way as when the engine runs.
    let (_, tokens) = text_states(&file, width).map_err(|problem| Error::input(path, problem))?;
    Ok((tokens, file))
}
