//! A picture of a diffusion pipeline.

use super::making::{Making, of_runtime, test_picture};
use crate::{Error, Result};
use tileforge_contract::Task;
use tileforge_engine::Pipeline;
use tileforge_image::Size;
use tileforge_runtime::diffusion::{GenerateKind, GenerateRequest, Generator, GeneratorOptions, Settings, Start};
use tileforge_runtime::host::Host;
use tileforge_runtime::pixels::Pixels;
use tileforge_session::Placement;

/// The prompt. Any text would do; this one is typical.
const PROMPT: &str = "a photograph of a red fox in the snow";

/// The start and end tokens of each piece of a text.
const FRAME: usize = 2;

/// Each step takes two runs of the network, which has most of the weights. The second step is the first one that
/// starts from another step's result.
pub(super) const STEPS: usize = 2;

/// This scheduler computes each step from one prediction and draws no noise, so the figure is about the networks
/// alone. Any other scheduler configuration also works for this class.
const SCHEDULER: &str = "DDIMScheduler";

/// How far the floor of the picture is below the floor of the worst network. Guidance adds g times the prediction with
/// the text and 1 − g times the prediction without it: for g = 7.5, independent errors grow by √(7.5² + 6.5²) = 9.9,
/// which is 20 dB.
pub(super) const GUIDANCE_DB: f64 = 20.0;

/// Makes the smallest picture of a pipeline.
pub(super) fn make(making: &Making<'_>, host: &Host, pipeline: &Pipeline, placement: Placement) -> Result<Pixels> {
    let text = Text::of(pipeline)?;
    let options = GeneratorOptions { placement, overlap: None, low_memory: true };
    let generator = Generator::new(host, pipeline, options).map_err(of_runtime)?;
    let request = request(&generator, &text);
    let made = making.result(host, generator, request)?.pictures.into_iter().next();
    made.ok_or_else(|| Error::input(making.folder, "expected a picture, and the runtime made none"))
}

/// The prompt.
struct Text {
    prompt: String,
    /// Whether it is encoded in several pieces.
    is_long: bool,
}

impl Text {
    /// A text of one piece, or of as many pieces as the network's shortest graphs need.
    fn of(pipeline: &Pipeline) -> Result<Self> {
        let shortest = |task: Task| -> Result<Option<usize>> {
            let mut tokens = Vec::new();
            let manifests = pipeline.parts().map(|(_, part)| part.manifest());
            for manifest in manifests.filter(|manifest| manifest.contract.task == task) {
                for graph in &manifest.graphs {
                    tokens.push(graph.sizes(&manifest.contract)?.tokens);
                }
            }
            Ok(tokens.into_iter().min())
        };
        Ok(match (shortest(Task::TextEncoder)?, shortest(Task::Unet)?) {
            (Some(piece), Some(whole)) if piece > FRAME && whole > piece => {
                // The shortest word of every vocabulary is one token.
                let words = (whole / piece - 1) * (piece - FRAME) + 1;
                Self { prompt: "a ".repeat(words), is_long: true }
            }
            _ => Self { prompt: PROMPT.into(), is_long: false },
        })
    }
}

/// A picture from noise; for a network that only fills masked parts, the right half of the test image.
fn request(generator: &Generator, text: &Text) -> GenerateRequest {
    let kind = if generator.needs_mask() { GenerateKind::Inpainting } else { GenerateKind::TextToImage };
    let size = generator.sizes().first().copied();
    let settings = Settings {
        steps: STEPS,
        scheduler: Some(SCHEDULER.into()),
        size,
        strength: 1.0,
        long_prompt: text.is_long,
        ..generator.settings(&text.prompt, kind)
    };
    let request = GenerateRequest::new(settings);
    let Some(size) = size.filter(|_| generator.needs_mask()) else { return request };
    request.from_start(move || Ok(Start::Picture(test_picture(size)))).with_mask(move || Ok(right_half(size)))
}

/// A mask that is white in the right half.
fn right_half(size: Size) -> Pixels {
    let row = (0..size.width).map(|column| if column < size.width / 2 { 0.0 } else { 1.0 });
    let samples = row.collect::<Vec<f32>>().repeat(size.height as usize);
    Pixels { size, channels: 1, samples }
}
