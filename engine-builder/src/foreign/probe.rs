//! Runs of a graph on the CPU that find what no file states: the scale, the sizes that the graph takes, and whether
//! the pictures of a batch are independent.

use super::fold::refused;
use crate::test_image::discs;
use crate::{Error, Result};
use ndarray::{ArrayD, IxDyn};
use std::path::Path;
use tileforge_engine::exchange;
use tileforge_graph::{Model, WeightStorage, save};
use tileforge_session::{Cancel, Environment, OptimisationLevel, Session, SessionOptions, Tensor};
use tracing::subscriber::NoSubscriber;

/// Values that heights and widths may have to be multiples of.
const MULTIPLES: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// The least side of a picture that shows the scale: larger than the reflection padding of networks.
const SIDE: usize = 24;
/// The largest difference, over the range, between two pictures in a batch and the same pictures alone: ONNX Runtime
/// may round differently.
const TOLERANCE: f32 = 1e-4;

/// The heights and widths that a network takes, and its output's scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    /// Output pixels for each input pixel, along each side.
    pub(super) scale: usize,
    /// Sides are multiples of this.
    pub(super) multiple: usize,
    /// The least side.
    pub(super) minimum: usize,
    /// Whether it takes several pictures in one run and computes each as if it were alone.
    pub(super) batches: bool,
}

/// A session on the CPU for a graph in the contract's form.
pub(super) struct Probe<'a> {
    path: &'a Path,
    session: Session,
    name: String,
    channels: usize,
    range: [f32; 2],
}

impl<'a> Probe<'a> {
    /// `path` is the file's path, for error messages.
    pub(super) fn open(
        path: &'a Path,
        environment: &Environment,
        model: &Model,
        channels: usize,
        range: [f32; 2],
    ) -> Result<Self> {
        let folder = exchange::temporary(&std::env::temp_dir())?;
        let file = folder.path().join("model.onnx");
        save(model, &file, WeightStorage::Copy)?;
        let options = SessionOptions { optimisation: OptimisationLevel::Disabled, ..SessionOptions::default() };
        let session = Session::open(environment, &file, &options).map_err(|error| refused(path, &error))?;
        let name = model.inputs.first().map_or_else(String::new, |port| port.name.clone());
        Ok(Self { path, session, name, channels, range })
    }

    /// The only size of a graph whose sizes are fixed.
    pub(super) fn fixed(&mut self, batch: usize, size: [usize; 2]) -> Result<Found> {
        let scale = self.scale_of(batch, size).map_err(|reason| Error::input(self.path, reason))?;
        Ok(Found { scale, multiple: 1, minimum: 1, batches: batch > 1 })
    }

    /// Tries multiples in ascending order. Stops when two sizes that are multiples of no larger candidate give the
    /// same scale.
    pub(super) fn free(&mut self, said: Option<usize>, batch: Option<usize>) -> Result<Found> {
        let mut first = None;
        let candidates: Vec<usize> = said.map_or_else(|| MULTIPLES.to_vec(), |multiple| vec![multiple]);
        let alone = batch.unwrap_or(1);
        for multiple in candidates {
            let odd = (SIDE.div_ceil(multiple) / 2) * 2 + 1;
            let side = |more: usize| (odd + more) * multiple;
            let (one, other) = ([side(0), side(2)], [side(4), side(2)]);
            let scales = self.scale_of(alone, one).and_then(|scale| Ok((scale, self.scale_of(alone, other)?)));
            match scales {
                Ok((scale, same)) if scale == same => {
                    let minimum = self.minimum(alone, multiple, side(0), scale);
                    let batches = match batch {
                        Some(_) => false,
                        None => self.batches(one)?,
                    };
                    return Ok(Found { scale, multiple, minimum, batches });
                }
                Ok((scale, other)) => {
                    first.get_or_insert(format!("it enlarges one size {scale} times, and another {other} times"));
                }
                Err(reason) => {
                    first.get_or_insert(reason);
                }
            }
        }
        let tried = match said {
            Some(multiple) => format!("sizes that are multiples of {multiple}"),
            None => "sizes that are multiples of 1 to 64".to_owned(),
        };
        let reason = first.unwrap_or_default();
        Err(Error::input(self.path, format!("it makes no picture in proportion of {tried}: {reason}")))
    }

    /// The least multiple that the network takes as both sides.
    fn minimum(&mut self, batch: usize, multiple: usize, known: usize, scale: usize) -> usize {
        let sides = (1..).map(|times: usize| if times <= 4 { times } else { 4 << (times - 4) });
        let mut sides = sides.map(|times| times * multiple).take_while(|side| *side < known);
        sides.find(|side| self.scale_of(batch, [*side; 2]) == Ok(scale)).unwrap_or(known)
    }

    /// Whether two pictures in one run give the same outputs as in two runs.
    fn batches(&mut self, size: [usize; 2]) -> Result<bool> {
        let of = |probe: &mut Self, numbers: &[u64]| probe.run(numbers, size).ok();
        let (Some(both), Some(one), Some(other)) = (of(self, &[1, 2]), of(self, &[1]), of(self, &[2])) else {
            return Ok(false);
        };
        let alone: Vec<f32> = one.iter().chain(other.iter()).copied().collect();
        let (low, high) = alone.iter().fold((f32::MAX, f32::MIN), |(low, high), v| (low.min(*v), high.max(*v)));
        let close = |(a, b): (&f32, &f32)| (a - b).abs() <= TOLERANCE * (high - low).max(f32::EPSILON);
        Ok(both.len() == alone.len() && both.iter().zip(&alone).all(close))
    }

    /// The scale of the output's sides, which must be the same for both.
    fn scale_of(&mut self, batch: usize, size: [usize; 2]) -> Result<usize, String> {
        let made = self.run(&(0..batch as u64).collect::<Vec<_>>(), size).map_err(|error| error.to_string())?;
        let [height, width] = size;
        let expected = format!("expected [{batch}, {}, {height} · scale, {width} · scale]", self.channels);
        let found = format!("a picture of {height}×{width} became {:?}", made.shape());
        let &[made_batch, channels, rows, columns] = made.shape() else { return Err(format!("{expected}; {found}")) };
        let scale = rows / height;
        let fits = scale > 0 && rows == scale * height && columns == scale * width;
        if !fits || made_batch != batch || channels != self.channels {
            return Err(format!("{expected}; {found}"));
        }
        Ok(scale)
    }

    fn run(&mut self, numbers: &[u64], [height, width]: [usize; 2]) -> Result<ArrayD<f32>> {
        let values = numbers.iter().flat_map(|number| discs([self.channels, height, width], self.range, *number));
        let shape = IxDyn(&[numbers.len(), self.channels, height, width]);
        let picture = ArrayD::from_shape_vec(shape, values.collect());
        let picture = Tensor::from(picture.map_err(|e| tileforge_graph::Error::Graph(e.to_string()))?);
        // A refused size is an answer here, and not an error for the user.
        let run = || self.session.run(&[(&self.name, &picture)], &Cancel::default());
        let made = tracing::subscriber::with_default(NoSubscriber::default(), run)?;
        let made = made.into_iter().next().ok_or_else(|| tileforge_graph::Error::Graph("it makes nothing".into()))?;
        Ok(made.1.into_f32()?)
    }
}
