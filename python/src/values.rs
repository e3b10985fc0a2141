//! Conversion of samples and tensors from and to arrays. The Python code passes one-dimensional arrays that no other
//! code can change, and reshapes the results.

use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use tileforge::{Colour, DepthMap, Latent, Picture, PixelData, Pixels, Samples, Size, Tensor};

use crate::failure::{exception, invalid_input};
use crate::process::apart;

/// The samples of a picture.
#[derive(FromPyObject)]
pub(crate) enum SampleArray<'py> {
    /// 0 to 255.
    Eight(PyReadonlyArray1<'py, u8>),
    /// 0 to 65535.
    Sixteen(PyReadonlyArray1<'py, u16>),
    /// 0 to 1.
    Float(PyReadonlyArray1<'py, f32>),
}

/// A picture as Python passes it: samples, height, width, channels.
pub(crate) type GivenPicture<'py> = (SampleArray<'py>, u32, u32, usize);

/// A picture as Python receives it.
pub(crate) type MadePicture<'py> = (Bound<'py, PyAny>, u32, u32, usize);

/// Copies a picture.
///
/// # Errors
/// It has no pixels, not 1 to 4 channels, or NaN.
pub(crate) fn picture(py: Python<'_>, given: &GivenPicture<'_>) -> PyResult<Picture> {
    let (samples, height, width, channels) = given;
    let colour = match channels {
        1 => Colour::Grey,
        2 => Colour::GreyAlpha,
        3 => Colour::Rgb,
        4 => Colour::Rgba,
        _ => return Err(invalid_input(py, &format!("a picture has 1 to 4 channels, found {channels}"))),
    };
    let data = match samples {
        SampleArray::Eight(array) => PixelData::Eight(array.as_slice()?),
        SampleArray::Sixteen(array) => PixelData::Sixteen(array.as_slice()?),
        SampleArray::Float(array) => PixelData::Float(array.as_slice()?),
    };
    let size = Size { width: *width, height: *height };
    let made = apart(py, || Picture::from_pixels(Pixels { size, colour, data, stride: None }));
    made.map_err(|error| exception(py, &error))
}

/// The picture's samples, height, width and channels.
pub(crate) fn made_picture(py: Python<'_>, picture: Picture) -> MadePicture<'_> {
    let (Size { width, height }, channels) = (picture.size(), picture.colour().channels());
    let samples = match apart(py, || picture.into_samples()) {
        Samples::Eight(samples) => PyArray1::from_vec(py, samples).into_any(),
        Samples::Sixteen(samples) => PyArray1::from_vec(py, samples).into_any(),
        Samples::Float(samples) => PyArray1::from_vec(py, samples).into_any(),
    };
    (samples, height, width, channels)
}

/// A sensor's map as Python passes it: metres, height, width.
pub(crate) type GivenMap<'py> = (PyReadonlyArray1<'py, f32>, u32, u32);

/// Copies a sensor's map.
///
/// # Errors
/// Its length is not that of its size, or a value is not finite.
pub(crate) fn map(py: Python<'_>, given: &GivenMap<'_>) -> PyResult<DepthMap> {
    let (values, height, width) = given;
    let (size, metres) = (Size { width: *width, height: *height }, values.as_slice()?.to_vec());
    if metres.len() as u64 != size.pixels() || metres.iter().any(|value| !value.is_finite()) {
        return Err(invalid_input(py, "a sensor's map has a finite number of metres for each pixel, 0 for none"));
    }
    Ok(DepthMap { size, metres })
}

/// A latent as Python passes it: values, channels, frames, height, width; width and height of the pixels, and frames
/// of the clip.
pub(crate) type GivenLatent<'py> =
    (PyReadonlyArray1<'py, f32>, usize, Option<usize>, u32, u32, Option<(u32, u32)>, Option<usize>);

/// Copies a latent.
///
/// # Errors
/// Its length is not that of its shape, or a value is not finite.
pub(crate) fn latent(py: Python<'_>, given: &GivenLatent<'_>) -> PyResult<Latent> {
    let (values, channels, frames, height, width, pixels, clip_frames) = given;
    let (size, values) = (Size { width: *width, height: *height }, values.as_slice()?.to_vec());
    let count = usize::try_from(size.pixels()).ok();
    let count = count.and_then(|pixels| pixels.checked_mul(*channels)?.checked_mul(frames.unwrap_or(1)));
    if count != Some(values.len()) || values.is_empty() || values.iter().any(|value| !value.is_finite()) {
        return Err(invalid_input(py, "a latent has at least one value, and finite ones alone"));
    }
    let pixels = pixels.map(|(width, height)| Size { width, height });
    Ok(Latent { channels: *channels, frames: *frames, size, values, pixels, clip_frames: *clip_frames })
}

/// A tensor as Python passes it: name, element type, shape, bytes.
pub(crate) type GivenTensor<'py> = (String, String, Vec<usize>, PyReadonlyArray1<'py, u8>);

/// Copies a tensor.
///
/// # Errors
/// Graphs do not have the element type, or the number of bytes does not fit the shape.
pub(crate) fn tensor(py: Python<'_>, given: &GivenTensor<'_>) -> PyResult<(String, Tensor)> {
    let (name, data_type, shape, bytes) = given;
    let refused = |problem: &str| invalid_input(py, &format!("{name}: {problem}"));
    let kind = data_type.parse().map_err(|_| refused(&format!("no graph takes elements of type {data_type}")))?;
    let bytes = bytes.as_slice()?;
    let tensor = apart(py, || Tensor::from_bytes(kind, shape, bytes));
    Ok((name.clone(), tensor.ok_or_else(|| refused(&format!("not a tensor of {data_type} of its shape")))?))
}
