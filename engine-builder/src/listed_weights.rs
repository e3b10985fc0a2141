//! Checks where an engine's graphs take their weights from.

use crate::Result;
use tileforge_engine::Engine;

/// Checks that the graphs of an engine use only weights that its manifest lists. Then the manifest's digests and its
/// signature cover everything that runs.
///
/// # Errors
/// [`tileforge_engine::Error::Unlisted`] with a file that a graph uses and the manifest does not list; or a graph is
/// not an ONNX model.
pub fn check_weights(engine: &Engine) -> Result<()> {
    for graph in &engine.manifest().graphs {
        for location in tileforge_graph::external_files(engine.file(&graph.file)?, &engine.path_of(&graph.file))? {
            engine.file(&location)?;
        }
    }
    Ok(())
}
