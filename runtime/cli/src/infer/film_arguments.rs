//! The arguments of `runtime infer` for films.

use std::time::Duration;

use tileforge_film::Encoding;
use tileforge_terminal::number;

/// For films, which ffmpeg reads and writes.
#[derive(clap::Args)]
#[command(next_help_heading = "Films")]
pub(super) struct FilmArguments {
    /// The encoder of the picture, by ffmpeg's name: libx265, libsvtav1, prores_ks … [default: libx264, in .webm
    /// libvpx-vp9].
    #[arg(long, value_name = "NAME", value_parser = name)]
    codec: Option<String>,
    /// Lose nothing in the encoder: FFV1.
    #[arg(long, conflicts_with_all = ["codec", "crf"])]
    lossless: bool,
    /// The constant rate factor of the encoder: less is better, and larger [default: 18 for libx264, 20 for libx265, 24
    /// for libvpx-vp9].
    #[arg(long, value_name = "N", value_parser = number(0.0..=63.0))]
    crf: Option<f64>,
    /// The pixel format that is encoded, by ffmpeg's name: yuv420p10le [default: the film's, or the nearest that the
    /// encoder takes].
    #[arg(long, value_name = "NAME", value_parser = name)]
    pixel_format: Option<String>,
    /// An option of the encoder, such as preset=slow or x265-params=aq-mode=3; again for more.
    #[arg(long = "encoder-options", value_name = "NAME=VALUE", value_parser = option)]
    encoder_options: Vec<(String, String)>,
    /// Begin here: seconds from the film's start, or 1:02:03.5. The new film begins at 0.
    #[arg(long, value_name = "TIME", value_parser = time)]
    from: Option<Duration>,
    /// End here, also from the film's start.
    #[arg(long, value_name = "TIME", value_parser = time)]
    to: Option<Duration>,
    /// Compute every frame. Without this, a frame with the bytes of the one before it gets that one's result.
    #[arg(long)]
    pub(super) no_deduplicate: bool,
}

/// Parses a name for ffmpeg: it may not contain characters with a meaning to ffmpeg.
fn name(text: &str) -> Result<String, String> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if text.is_empty() || text.starts_with('-') || !text.bytes().all(is_name) {
        return Err("expected a name of letters, digits, _ and -".into());
    }
    Ok(text.into())
}

fn option(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected NAME=VALUE, such as preset=slow")?;
    Ok((name(key)?, value.into()))
}

/// Parses seconds, or H:M:S.
fn time(text: &str) -> Result<Duration, String> {
    let expected = || "expected seconds or H:M:S, such as 90, 1:30 or 0:01:30.5".to_owned();
    let mut parts = text.split(':').rev();
    let seconds: f64 = parts.next().and_then(|part| part.parse().ok()).ok_or_else(expected)?;
    let mut total = seconds;
    for unit in [60.0, 3600.0] {
        if let Some(part) = parts.next() {
            total += unit * f64::from(part.parse::<u32>().map_err(|_| expected())?);
        }
    }
    if parts.next().is_some() || seconds < 0.0 {
        return Err(expected());
    }
    Duration::try_from_secs_f64(total).map_err(|_| expected())
}

impl FilmArguments {
    /// The first option that was given, for other inputs to refuse.
    pub(super) fn given(&self) -> Option<&'static str> {
        let Self { codec, lossless, crf, pixel_format, encoder_options, from, to, no_deduplicate } = self;
        [
            (codec.is_some(), "--codec"),
            (*lossless, "--lossless"),
            (crf.is_some(), "--crf"),
            (pixel_format.is_some(), "--pixel-format"),
            (!encoder_options.is_empty(), "--encoder-options"),
            (from.is_some(), "--from"),
            (to.is_some(), "--to"),
            (*no_deduplicate, "--no-deduplicate"),
        ]
        .into_iter()
        .find_map(|(given, name)| given.then_some(name))
    }

    /// How the picture is encoded.
    pub(super) fn encoding(&self) -> Encoding {
        Encoding {
            encoder: self.codec.clone(),
            lossless: self.lossless,
            crf: self.crf,
            pixel_format: self.pixel_format.clone(),
            options: self.encoder_options.clone(),
        }
    }

    /// The part of the film that is made.
    pub(super) fn part(&self) -> (Option<Duration>, Option<Duration>) {
        (self.from, self.to)
    }

    /// What is wrong with the part, if anything.
    pub(super) fn problem(&self) -> Option<String> {
        let (from, to) = (self.from.unwrap_or_default(), self.to?);
        (from >= to).then(|| format!("--from ({from:?}) has to be before --to ({to:?})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_up_to_three_parts() {
        let of = |text: &str| time(text).map(|time| time.as_secs_f64());
        assert_eq!(of("90"), Ok(90.0));
        assert_eq!(of("1:30"), Ok(90.0));
        assert_eq!(of("1:02:03.5"), Ok(3723.5));
        for wrong in ["", "-1", "1:", ":1", "1:2:3:4", "nan", "inf", "1e300", "1.5:2", "x"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_are_plain() {
        assert_eq!(option("x265-params=a=1:b=2"), Ok(("x265-params".into(), "a=1:b=2".into())));
        for wrong in ["preset", "=x", "a b=c", "-i=x", "a:0=x"] {
            assert!(option(wrong).is_err(), "{wrong}");
        }
        assert!(name("lib/x").is_err() && name("").is_err() && name("prores_ks").is_ok());
    }
}
