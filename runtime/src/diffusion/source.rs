//! The start of a request, opened and checked.

use tileforge_image::Size;

use super::error::Error;
use super::request::Start;
use super::settings::Settings;
use crate::autoencoder::{Latent, pixels_of};
use crate::pixels::Pixels;

/// What the steps start from.
pub(super) enum StartingPoint {
    /// Noise of deviation 1; `None`: the noise is drawn.
    Noise(Option<Latent>),
    /// A picture, to which noise is added.
    Picture(Pixels),
    /// A latent, to which noise is added, or which already has noise from another network.
    Latent(Latent),
    /// A picture, and a mask of its size; the white part is regenerated.
    Masked { picture: Pixels, mask: Pixels },
}

impl StartingPoint {
    pub(super) fn new(start: Option<Start>, mask: Option<Pixels>, noise: Option<Latent>) -> Result<Self, Error> {
        match (start, mask) {
            (None, None) => Ok(Self::Noise(noise)),
            (Some(Start::Picture(picture)), None) => Ok(Self::Picture(picture)),
            (Some(Start::Latent(latent)), None) => Ok(Self::Latent(latent)),
            (Some(Start::Picture(picture)), Some(mask)) if picture.size == mask.size => {
                Ok(Self::Masked { picture, mask })
            }
            (Some(Start::Picture(picture)), Some(mask)) => {
                Err(Error::MaskSize { picture: picture.size, mask: mask.size })
            }
            (_, Some(_)) => Err(Error::Inputs { problem: "a mask needs a picture, whose part it is" }),
        }
    }

    /// The size of the result in pixels, if the request names none. `factor` is the autoencoder's.
    pub(super) fn size(&self, factor: usize) -> Option<Size> {
        match self {
            Self::Noise(latent) => latent.as_ref().map(|latent| pixels_of(latent.size, factor)),
            Self::Latent(latent) => Some(pixels_of(latent.size, factor)),
            Self::Picture(picture) | Self::Masked { picture, .. } => {
                let multiple = u32::try_from(factor).unwrap_or(u32::MAX);
                let side = |length: u32| length - length % multiple;
                Some(Size { width: side(picture.size.width), height: side(picture.size.height) })
            }
        }
    }

    /// The size of the picture, if there is one.
    pub(super) fn picture(&self) -> Option<Size> {
        match self {
            Self::Picture(picture) | Self::Masked { picture, .. } => Some(picture.size),
            Self::Noise(_) | Self::Latent(_) => None,
        }
    }

    /// Checks that the networks can start from it: their latents have this many channels and this size.
    pub(super) fn check(
        &self,
        settings: &Settings,
        channels: usize,
        size: Size,
        has_encoder: bool,
    ) -> Result<(), Error> {
        match self {
            Self::Noise(None) => Ok(()),
            Self::Noise(Some(_)) if settings.count != 1 => {
                Err(Error::Inputs { problem: "noise that is given is that of one picture" })
            }
            Self::Noise(Some(latent)) => check_latent("the noise", latent, channels, size),
            Self::Latent(latent) => check_latent("the latent to start from", latent, channels, size),
            Self::Masked { .. } if settings.start.is_some() => {
                Err(Error::Inputs { problem: "a picture with a mask cannot go on where a network stopped" })
            }
            Self::Picture(_) | Self::Masked { .. } if !has_encoder => {
                Err(Error::NoPart { part: "an encoder of pictures", purpose: "a picture to start from" })
            }
            Self::Picture(_) | Self::Masked { .. } => Ok(()),
        }
    }
}

/// Checks that the network takes a latent: a picture's, with this many channels and this size.
pub(super) fn check_latent(what: &'static str, latent: &Latent, channels: usize, size: Size) -> Result<(), Error> {
    let text = |channels: usize, size: Size, frames: Option<usize>| {
        let frames = frames.map_or(String::new(), |frames| format!(" and {frames} frames"));
        format!("{channels} channels of {size}{frames}")
    };
    if (latent.channels, latent.size, latent.frames) == (channels, size, None) {
        return latent.check(|expected, found| Error::Latent { what, expected, found });
    }
    let (expected, found) = (text(channels, size, None), text(latent.channels, latent.size, latent.frames));
    Err(Error::Latent { what, expected, found })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diffusion::{Family, GenerateKind};

    const CHANNELS: usize = 4;
    const FACTOR: usize = 8;
    const EIGHT: Size = Size { width: 8, height: 8 };

    fn picture(width: u32, height: u32) -> Pixels {
        let size = Size { width, height };
        Pixels { size, channels: 3, samples: vec![0.5; 3 * size.pixels() as usize] }
    }

    fn latent(channels: usize, size: Size) -> Latent {
        let values = vec![0.0; channels * size.pixels() as usize];
        Latent { channels, frames: None, size, values, pixels: None, clip_frames: None }
    }

    fn masked(start: Start, mask: Pixels) -> Result<StartingPoint, Error> {
        StartingPoint::new(Some(start), Some(mask), None)
    }

    #[test]
    fn a_mask_needs_a_picture_of_its_size() {
        assert!(masked(Start::Picture(picture(9, 7)), picture(9, 7)).is_ok());
        let error = masked(Start::Picture(picture(9, 7)), picture(7, 9)).err().unwrap().to_string();
        assert_eq!(error, "expected a mask of the picture's size 9×7, found 7×9");
        for refused in [
            masked(Start::Latent(latent(4, EIGHT)), picture(9, 7)),
            StartingPoint::new(None, Some(picture(9, 7)), None),
        ] {
            assert_eq!(refused.err().unwrap().to_string(), "a mask needs a picture, whose part it is");
        }
    }

    #[test]
    fn what_is_given_has_the_size_of_the_result() {
        assert_eq!(StartingPoint::Noise(None).size(FACTOR), None);
        assert_eq!(StartingPoint::Noise(Some(latent(4, EIGHT))).size(FACTOR), Some(Size { width: 64, height: 64 }));
        assert_eq!(StartingPoint::Latent(latent(4, EIGHT)).size(FACTOR), Some(Size { width: 64, height: 64 }));
        // The remainder beyond whole latent pixels is left out, as in diffusers.
        assert_eq!(StartingPoint::Picture(picture(81, 70)).size(FACTOR), Some(Size { width: 80, height: 64 }));
    }

    #[test]
    fn what_the_networks_cannot_start_from_is_refused_before_they_run() {
        let mut settings = Settings::new("a fox", GenerateKind::ImageToImage, Family::StableDiffusion);
        let check = |source: &StartingPoint, settings: &Settings, has_encoder: bool| {
            source.check(settings, CHANNELS, EIGHT, has_encoder).map_err(|error| error.to_string())
        };
        let (noise, start) = (StartingPoint::Noise(Some(latent(4, EIGHT))), StartingPoint::Latent(latent(16, EIGHT)));
        assert_eq!(check(&StartingPoint::Noise(None), &settings, false), Ok(()));
        assert_eq!(check(&noise, &settings, false), Ok(()));
        let expected = "the latent to start from: expected a latent of 4 channels of 8×8, found 16 channels of 8×8";
        assert_eq!(check(&start, &settings, true), Err(expected.into()));
        for (count, found) in [(255, "255"), (257, "257")] {
            let source = StartingPoint::Noise(Some(Latent { values: vec![0.0; count], ..latent(4, EIGHT) }));
            let expected = "the noise: expected a latent of 256 values for 4 channels of 8×8, found";
            assert_eq!(check(&source, &settings, false), Err(format!("{expected} {found}")));
        }
        let expected = "a picture to start from needs an encoder of pictures, and the engine has none";
        assert_eq!(check(&StartingPoint::Picture(picture(64, 64)), &settings, false), Err(expected.into()));
        assert_eq!(check(&StartingPoint::Picture(picture(64, 64)), &settings, true), Ok(()));
        settings.count = 2;
        assert_eq!(check(&noise, &settings, false), Err("noise that is given is that of one picture".into()));
        settings.start = Some(0.5);
        let masked = masked(Start::Picture(picture(64, 64)), picture(64, 64)).unwrap();
        let expected = "a picture with a mask cannot go on where a network stopped";
        assert_eq!(check(&masked, &settings, true), Err(expected.into()));
    }
}
