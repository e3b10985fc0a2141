//! An engine and its services.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use tileforge::diffusion::{GenerateKind, Settings};
use tileforge::restoration::{self, NoiseOf};
use tileforge::{
    Cancel, DepthEstimator, Generator, OpenOptions, Picture, Placement, PublicKey, RealtimeOptions, SessionOptions,
    TensorInfo, Tensors, Terms, Upscale, Upscaler,
};

use crate::failure::{exception, failed, invalid_input};
use crate::opened::{OpenedEngine, Services};
use crate::process::{Owned, apart, check, host, new_cancel, remember};
use crate::request::{Output, Request, previews};
use crate::stream::Stream;
use crate::values::{GivenLatent, GivenMap, GivenPicture, GivenTensor, latent, map, picture, tensor};

/// A tensor's name, its element type and its lengths; None for a length that requests choose.
type Described = (String, Option<&'static str>, Vec<Option<usize>>);

/// The name of a part or None, how the part fits this machine, and its provider, if one can run it.
type PartVerdict = (Option<String>, String, Option<&'static str>);

/// An opened engine.
#[pyclass(frozen, module = "tileforge._native")]
pub(crate) struct Engine(Arc<Owned<Arc<OpenedEngine>>>);

impl Engine {
    fn opened(&self, py: Python<'_>) -> PyResult<&Arc<OpenedEngine>> {
        check(py)?;
        self.0.get().ok_or_else(|| failed(py, "the engine is closed"))
    }

    /// A service of the engine, opened now if it is not open yet.
    fn service<S: Send + Sync>(
        &self,
        py: Python<'_>,
        place: impl FnOnce(&mut Services) -> &mut Option<Arc<S>> + Send,
        open: impl FnOnce(&tileforge::Engine, Placement) -> tileforge::Result<S> + Send,
    ) -> PyResult<Arc<S>> {
        let opened = self.opened(py)?;
        let service = apart(py, || opened.service(place, open)).map_err(|error| exception(py, &error))?;
        service.ok_or_else(|| failed(py, "the engine is closed"))
    }

    fn upscaler(&self, py: Python<'_>) -> PyResult<Arc<Upscaler>> {
        let open = |engine: &tileforge::Engine, placement| engine.upscaler(Upscale { placement, ..Upscale::default() });
        self.service(py, |services| &mut services.upscaler, open)
    }

    fn depth_estimator(&self, py: Python<'_>) -> PyResult<Arc<DepthEstimator>> {
        self.service(py, |services| &mut services.depth, tileforge::Engine::depth)
    }

    fn tensors(&self, py: Python<'_>) -> PyResult<Arc<Tensors>> {
        self.service(py, |services| &mut services.tensors, tileforge::Engine::tensors)
    }

    fn generator(&self, py: Python<'_>) -> PyResult<Arc<Generator>> {
        let open = |engine: &tileforge::Engine, placement| {
            engine.generator(tileforge::Generation { placement, ..Default::default() })
        };
        self.service(py, |services| &mut services.generator, open)
    }

    /// Submits a request without the interpreter's lock.
    fn submit(
        &self,
        py: Python<'_>,
        seconds: Option<f64>,
        previews: Option<Receiver<(usize, Picture)>>,
        send: impl FnOnce(Terms) -> tileforge::Result<tileforge::Request<Output>> + Send,
    ) -> PyResult<Request> {
        let cancel = new_cancel();
        let terms = terms(py, &cancel, seconds)?;
        let request = apart(py, || send(terms)).map_err(|error| exception(py, &error))?;
        Ok(Request::new(request, cancel, previews, self.0.clone()))
    }
}

/// Terms with a deadline `seconds` from now. If the queue is full, the Python code waits, so that it can react to
/// Ctrl-C.
fn terms(py: Python<'_>, cancel: &Cancel, seconds: Option<f64>) -> PyResult<Terms> {
    let deadline = match seconds {
        // Times above thirty years count as no limit: clocks cannot represent much more.
        None | Some(1e9..) => None,
        Some(seconds) => {
            let refused = || invalid_input(py, &format!("timeout: expected seconds, found {seconds}"));
            let time = Duration::try_from_secs_f64(seconds).map_err(|_| refused())?;
            Some(Instant::now() + time)
        }
    };
    Ok(Terms { deadline, refuses_to_wait: true, ..Terms::from(cancel) })
}

#[pymethods]
impl Engine {
    /// Opens an engine.
    #[staticmethod]
    #[pyo3(signature = (source, *, onnxruntime, library_folders, cache, verify_key, part, provider, strict, threads,
                        streams, devices, waiting))]
    #[allow(clippy::too_many_arguments)] // the options of `tileforge.open`
    fn open(
        py: Python<'_>,
        source: PathBuf,
        onnxruntime: PathBuf,
        library_folders: Vec<PathBuf>,
        cache: Option<PathBuf>,
        verify_key: Option<PathBuf>,
        part: Option<String>,
        provider: Option<String>,
        strict: bool,
        threads: Option<usize>,
        streams: Option<usize>,
        devices: Vec<u32>,
        waiting: usize,
    ) -> PyResult<Self> {
        check(py)?;
        let provider = match provider {
            None => None,
            Some(name) => {
                let unknown = || {
                    let text =
                        format!("provider: expected cpu, openvino, cuda, tensorrt or tensorrt-rtx, found {name}");
                    invalid_input(py, &text)
                };
                Some(name.parse().map_err(|_| unknown())?)
            }
        };
        for (name, found) in [("threads", threads), ("streams", streams), ("waiting", Some(waiting))] {
            if found == Some(0) {
                return Err(invalid_input(py, &format!("{name}: expected at least 1, found 0")));
            }
        }
        let session = SessionOptions { strict, threads, ..SessionOptions::default() };
        let placement = Placement { provider, streams, devices, session };
        let opened = apart(py, || -> tileforge::Result<OpenedEngine> {
            let host = host(onnxruntime, library_folders, cache)?;
            let key = verify_key.as_deref().map(PublicKey::read).transpose()?;
            let options = OpenOptions { key, part, waiting, ..OpenOptions::default() };
            let engine = tileforge::Engine::open(&host, source, &options)?;
            Ok(OpenedEngine::new(engine, placement))
        });
        let opened = Arc::new(opened.map_err(|error| exception(py, &error))?);
        remember(&opened);
        Ok(Self(Arc::new(Owned::new(opened))))
    }

    /// The engine's task; None for an engine of several parts, unless they restore.
    fn task(&self, py: Python<'_>) -> PyResult<Option<&'static str>> {
        let engine = &self.opened(py)?.engine;
        Ok(engine.task().map(tileforge::Task::name).or(engine.is_restorer().then_some("restore")))
    }

    /// Its name.
    fn name(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.opened(py)?.engine.name().to_owned())
    }

    /// The manifest as JSON.
    fn manifest(&self, py: Python<'_>) -> PyResult<String> {
        let opened = self.opened(py)?;
        apart(py, || opened.engine.manifest_json()).map_err(|error| exception(py, &error))
    }

    /// For each part its name or None, the verdict as a text, and its provider, if one can run it.
    fn verdicts(&self, py: Python<'_>) -> PyResult<Vec<PartVerdict>> {
        let opened = self.opened(py)?;
        let verdicts = apart(py, || {
            let verdicts = opened.engine.verdicts(&opened.placement).into_iter();
            let described = |(part, verdict): (Option<&str>, tileforge::Verdict)| {
                let provider = verdict.providers().first().map(|provider| provider.name());
                (part.map(str::to_owned), verdict.to_string(), provider)
            };
            verdicts.map(described).collect::<Vec<_>>()
        });
        Ok(verdicts)
    }

    /// Sends a picture through an engine that enlarges or restores.
    fn upscale(&self, py: Python<'_>, given: GivenPicture<'_>, timeout: Option<f64>) -> PyResult<Request> {
        let service = self.upscaler(py)?;
        let picture = picture(py, &given)?;
        self.submit(py, timeout, None, move |terms| {
            Ok(service.submit(picture, terms)?.map(|picture| Ok(Output::Picture(picture))))
        })
    }

    /// Sends a picture and its mask through an engine that fills in.
    fn inpaint(
        &self,
        py: Python<'_>,
        given: GivenPicture<'_>,
        mask: GivenPicture<'_>,
        timeout: Option<f64>,
    ) -> PyResult<Request> {
        let service = self.service(py, |services| &mut services.inpainter, tileforge::Engine::inpainter)?;
        let (picture, mask) = (picture(py, &given)?, picture(py, &mask)?);
        self.submit(py, timeout, None, move |terms| {
            Ok(service.submit(picture, mask, terms)?.map(|picture| Ok(Output::Picture(picture))))
        })
    }

    /// Whether an engine for depth needs a sensor's map.
    fn takes_map(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.depth_estimator(py)?.takes_map())
    }

    /// Sends a picture through an engine for depth.
    fn depth(
        &self,
        py: Python<'_>,
        given: GivenPicture<'_>,
        sensor: Option<GivenMap<'_>>,
        timeout: Option<f64>,
    ) -> PyResult<Request> {
        let service = self.depth_estimator(py)?;
        let picture = picture(py, &given)?;
        let map = sensor.map(|sensor| map(py, &sensor)).transpose()?;
        self.submit(py, timeout, None, move |terms| {
            Ok(service.submit(picture, map, terms)?.map(|estimate| Ok(Output::Depth(estimate))))
        })
    }

    /// Sends a picture or the frames of a clip through an encoder.
    fn encode(&self, py: Python<'_>, given: Vec<GivenPicture<'_>>, timeout: Option<f64>) -> PyResult<Request> {
        let open = |engine: &tileforge::Engine, placement| engine.encoder(tileforge::Coding { placement });
        let service = self.service(py, |services| &mut services.encoder, open)?;
        let frames = given.iter().map(|given| picture(py, given)).collect::<PyResult<Vec<_>>>()?;
        self.submit(py, timeout, None, move |terms| {
            Ok(service.submit_clip(frames, terms)?.map(|latent| Ok(Output::Latent(latent))))
        })
    }

    /// Sends a latent through a decoder.
    fn decode(&self, py: Python<'_>, given: GivenLatent<'_>, timeout: Option<f64>) -> PyResult<Request> {
        let open = |engine: &tileforge::Engine, placement| engine.decoder(tileforge::Coding { placement });
        let service = self.service(py, |services| &mut services.decoder, open)?;
        let latent = latent(py, &given)?;
        self.submit(py, timeout, None, move |terms| {
            Ok(service.submit_clip(latent, terms)?.map(|pictures| Ok(Output::Pictures(pictures))))
        })
    }

    /// Sends a picture or the frames of a film through a pipeline that restores.
    #[allow(clippy::too_many_arguments)] // what `Engine.restore` sends
    fn restore(
        &self,
        py: Python<'_>,
        given: Vec<GivenPicture<'_>>,
        size: Option<String>,
        seed: Option<u64>,
        noise: Option<GivenLatent<'_>>,
        colour: String,
        frame_overlap: usize,
        timeout: Option<f64>,
    ) -> PyResult<Request> {
        let open = |engine: &tileforge::Engine, placement| engine.restorer(tileforge::Coding { placement });
        let service = self.service(py, |services| &mut services.restorer, open)?;
        let refused = |name: &str, problem: &str| invalid_input(py, &format!("{name}: {problem}"));
        let defaults = restoration::Settings::default();
        let noise = match (noise, seed) {
            (Some(_), Some(_)) => return Err(refused("noise", "expected no seed beside it")),
            (Some(noise), None) => NoiseOf::Latent(latent(py, &noise)?),
            (None, seed) => seed.map_or(defaults.noise, NoiseOf::Seed),
        };
        let wanted = size.map(|text| text.parse()).transpose().map_err(|problem: String| refused("size", &problem))?;
        let settings = restoration::Settings {
            wanted: wanted.unwrap_or(defaults.wanted),
            frame_overlap,
            colour: colour.parse().map_err(|problem: String| refused("colour", &problem))?,
            noise,
        };
        let frames = given.iter().map(|given| picture(py, given)).collect::<PyResult<Vec<_>>>()?;
        self.submit(py, timeout, None, move |terms| {
            Ok(service.submit_film(frames, settings, terms)?.map(|pictures| Ok(Output::Pictures(pictures))))
        })
    }

    /// The inputs of an engine of one network, and its outputs.
    fn ports(&self, py: Python<'_>) -> PyResult<(Vec<Described>, Vec<Described>)> {
        let service = self.tensors(py)?;
        let described = |infos: Vec<TensorInfo>| {
            let infos = infos.into_iter();
            infos.map(|info| (info.name, info.data_type.map(|data_type| data_type.name()), info.shape)).collect()
        };
        Ok((described(service.inputs()), described(service.outputs())))
    }

    /// Sends tensors through any network.
    fn run(&self, py: Python<'_>, given: Vec<GivenTensor<'_>>, timeout: Option<f64>) -> PyResult<Request> {
        let service = self.tensors(py)?;
        let inputs = given.iter().map(|given| tensor(py, given)).collect::<PyResult<BTreeMap<_, _>>>()?;
        self.submit(py, timeout, None, move |terms| {
            Ok(service.submit(inputs, terms)?.map(|outputs| Ok(Output::Tensors(outputs))))
        })
    }

    /// Width and height of the pictures that a pipeline makes, the smallest first.
    fn sizes(&self, py: Python<'_>) -> PyResult<Vec<(u32, u32)>> {
        let service = self.generator(py)?;
        Ok(service.sizes().into_iter().map(|size| (size.width, size.height)).collect())
    }

    /// Makes pictures. `settings` is a JSON object with the settings that differ from diffusers' defaults.
    #[pyo3(signature = (prompt, settings, image, mask, preview_every, timeout))]
    #[allow(clippy::too_many_arguments)] // what `Engine.generate` sends
    fn generate(
        &self,
        py: Python<'_>,
        prompt: String,
        settings: &str,
        image: Option<GivenPicture<'_>>,
        mask: Option<GivenPicture<'_>>,
        preview_every: Option<usize>,
        timeout: Option<f64>,
    ) -> PyResult<Request> {
        let service = self.generator(py)?;
        let kind = match (&image, &mask) {
            (None, None) => GenerateKind::TextToImage,
            (Some(_), None) => GenerateKind::ImageToImage,
            (Some(_), Some(_)) => GenerateKind::Inpainting,
            (None, Some(_)) => return Err(invalid_input(py, "mask: expected an image that it belongs to")),
        };
        let settings =
            changed(service.settings(prompt, kind), settings).map_err(|problem| invalid_input(py, &problem))?;
        let image = image.map(|given| picture(py, &given)).transpose()?;
        let mask = mask.map(|given| picture(py, &given)).transpose()?;
        let mut request = tileforge::Generate::new(settings);
        if let Some(image) = image {
            request = request.from_picture(image);
        }
        if let Some(mask) = mask {
            request = request.with_mask(mask);
        }
        let mut taken = None;
        if let Some(every) = preview_every {
            let (sender, receiver) = previews();
            // If the request was dropped, no caller reads previews.
            request = request.with_previews(every, move |steps, picture| drop(sender.send((steps, picture))));
            taken = Some(receiver);
        }
        self.submit(py, timeout, taken, move |terms| {
            Ok(service.send(request, terms)?.map(|generated| Ok(Output::Generated(Box::new(generated)))))
        })
    }

    /// Begins a stream of frames through an engine for real time.
    fn play(&self, py: Python<'_>) -> PyResult<Stream> {
        let open = |engine: &tileforge::Engine, placement| {
            engine.player(RealtimeOptions { placement, ..RealtimeOptions::default() })
        };
        let player = self.service(py, |services| &mut services.player, open)?;
        apart(py, || Stream::new(&player, new_cancel())).map_err(|error| exception(py, &error))
    }
}

/// Settings with other values.
fn changed(settings: Settings, changes: &str) -> Result<Settings, String> {
    let mut values = serde_json::to_value(settings).map_err(|error| error.to_string())?;
    let changes: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(changes).map_err(|error| error.to_string())?;
    if let Some(values) = values.as_object_mut() {
        values.extend(changes);
    }
    serde_json::from_value(values).map_err(|error| error.to_string())
}
