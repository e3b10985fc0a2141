//! Which axes of a graph's tensors are a picture's, and the receptive field of the network.

use serde::Serialize;
use tileforge_graph::{Dim, Model, PictureAxes, Port, Reach, reach};

/// The order of a picture's axes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Layout {
    /// `[batch, channels, height, width]`
    Nchw,
    /// `[batch, height, width, channels]`
    Nhwc,
}

impl Layout {
    /// The axes of rows and columns.
    pub fn sides(self) -> [usize; 2] {
        match self {
            Self::Nchw => [2, 3],
            Self::Nhwc => [1, 2],
        }
    }

    /// The axis of channels.
    pub fn channels(self) -> usize {
        match self {
            Self::Nchw => 1,
            Self::Nhwc => 3,
        }
    }
}

impl std::fmt::Display for Layout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Nchw => "NCHW",
            Self::Nhwc => "NHWC",
        })
    }
}

/// A tensor that is a picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PictureTensor {
    /// Its name.
    pub name: String,
    /// The order of its axes.
    pub layout: Layout,
    /// Batch, rows and columns, in this order.
    pub dims: [Dim; 3],
}

impl PictureTensor {
    /// With its axes of rows and columns.
    pub fn axes(&self) -> PictureAxes<'_> {
        PictureAxes { name: &self.name, axes: self.layout.sides() }
    }
}

/// A network from picture to picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// What it reads.
    pub input: PictureTensor,
    /// What it makes.
    pub output: PictureTensor,
    /// Channels in and out: 1 or 3.
    pub channels: usize,
}

impl Picture {
    /// The picture that a graph with one input and one output works on.
    ///
    /// # Errors
    /// What was expected, and what was found: no such tensors, or sizes that leave open which axis is which.
    pub fn of(model: &Model) -> Result<Self, String> {
        let ([input], [output]) = (model.inputs.as_slice(), model.outputs.as_slice()) else {
            let (inputs, outputs) = (model.inputs.len(), model.outputs.len());
            return Err(format!("expected one input and one output of pictures, found {inputs} and {outputs}"));
        };
        let (layout, channels) = layout_of(input, None)?;
        let (output_layout, _) = layout_of(output, Some((layout, channels)))?;
        let tensor = |port: &Port, layout: Layout| {
            let at = |axis: usize| port.ty.dims.get(axis).cloned().unwrap_or(Dim::Fixed(1));
            let [rows, columns] = layout.sides();
            PictureTensor { name: port.name.clone(), layout, dims: [at(0), at(rows), at(columns)] }
        };
        Ok(Self { input: tensor(input, layout), output: tensor(output, output_layout), channels })
    }

    /// Output pixels for each input pixel, along each side, as far as shape inference tells.
    pub fn scale(&self) -> Option<usize> {
        let [_, rows, columns] = &self.input.dims;
        let [_, made_rows, made_columns] = &self.output.dims;
        let ratio = |own: &Dim, made: &Dim| made.divided_by(own)?.fixed().filter(|scale| *scale > 0);
        ratio(rows, made_rows).filter(|scale| ratio(columns, made_columns) == Some(*scale))
    }

    /// Whether the number of rows or columns is dynamic.
    pub fn is_dynamic(&self) -> bool {
        self.input.dims.iter().skip(1).any(|dim| dim.fixed().is_none())
    }
}

/// The order of a tensor's axes, and its channels. An output has as many channels as the input, and the input's order
/// where both are possible.
fn layout_of(port: &Port, expected: Option<(Layout, usize)>) -> Result<(Layout, usize), String> {
    let [_, first, _, last] = port.ty.dims.as_slice() else {
        let (name, ty) = (port.name.escape_debug(), &port.ty);
        return Err(format!(
            "`{name}`: expected [batch, channels, height, width] or [batch, height, width, channels], found {ty}"
        ));
    };
    let fits = |dim: &Dim| match (dim.fixed(), expected) {
        (Some(found), Some((_, channels))) => found == channels,
        (Some(found), None) => matches!(found, 1 | 3),
        (None, _) => false,
    };
    let order = match expected {
        Some((Layout::Nhwc, _)) => [(Layout::Nhwc, last), (Layout::Nchw, first)],
        _ => [(Layout::Nchw, first), (Layout::Nhwc, last)],
    };
    let found = order.into_iter().find(|(_, dim)| fits(dim)).and_then(|(layout, dim)| Some((layout, dim.fixed()?)));
    found.ok_or_else(|| {
        let wanted = expected.map_or("1 or 3 channels, behind the batch or at the end".to_owned(), |(_, channels)| {
            format!("{channels} channels, as the input has")
        });
        format!("`{}`: expected {wanted}, found {}", port.name.escape_debug(), port.ty)
    })
}

/// The receptive field of a network, from its graphs for one or two sizes: if it covers the whole picture, the two
/// results differ. A single size suffices if the receptive field is less than half of it.
///
/// # Errors
/// Why it cannot be stated.
pub fn receptive_field(models: &[Model], picture: &Picture, scale: usize) -> Result<Reach, String> {
    let of = |model: &Model| {
        let found = reach(model, picture.input.axes(), picture.output.axes(), scale).map_err(|why| why.to_string())?;
        let input = model.inputs.iter().find(|port| port.name == picture.input.name);
        let side = |axis: usize| input.and_then(|port| port.ty.dims.get(axis)?.fixed()).unwrap_or(0);
        let [rows, columns] = picture.input.layout.sides().map(side);
        Ok((found, rows.min(columns), [rows, columns]))
    };
    let found = models.iter().map(of).collect::<Result<Vec<_>, String>>()?;
    let whole = || Err("it sees the whole picture".to_owned());
    match found.as_slice() {
        [(one, _, _), (other, _, _)] if one == other => Ok(*one),
        [(only, least, sides)] if only.radius < least / 2 => match sides.iter().all(|side| side % only.period == 0) {
            true => Ok(*only),
            false => Err(format!("its sizes are not multiples of its period of {} pixels", only.period)),
        },
        [_] => Err("it sees half of the picture or more".to_owned()),
        _ => whole(),
    }
}
