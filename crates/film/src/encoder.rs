//! Encoders of ffmpeg, and the choice of their options.

use std::path::Path;
use std::process::Stdio;

use crate::container::Container;
use crate::error::{Error, Result};
use crate::pixel_format::Samples;
use crate::programs::Programs;

/// The user's choice of encoder options.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Encoding {
    /// ffmpeg's name of the encoder; `None`: the container's default encoder.
    pub encoder: Option<String>,
    /// Whether to use FFV1, which is lossless.
    pub lossless: bool,
    /// The constant rate factor. A lower factor gives better quality and a larger file.
    pub crf: Option<f64>,
    /// ffmpeg's name of the pixel format; `None`: the film's format, or the nearest format that the encoder accepts.
    pub pixel_format: Option<String>,
    /// More options of the encoder, by their names.
    pub options: Vec<(String, String)>,
}

const LOSSLESS: &str = "ffv1";

/// An encoder with its pixel format.
#[derive(Clone, Debug)]
pub(crate) struct Encoder {
    pub(crate) name: String,
    pub(crate) pixel_format: String,
    /// The samples of frames that are sent to ffmpeg.
    pub(crate) samples: Samples,
    pub(crate) crf: Option<f64>,
    pub(crate) options: Vec<(String, String)>,
}

impl Encoder {
    /// The encoder for frames like `source`.
    pub(crate) fn choose(
        programs: Programs,
        output: &Path,
        container: Container,
        encoding: &Encoding,
        source: Samples,
    ) -> Result<Self> {
        let refused = |problem: String| Err(Error::output(output, problem));
        let name = match (&encoding.encoder, encoding.lossless) {
            (Some(name), _) => name.clone(),
            (None, true) => LOSSLESS.into(),
            (None, false) => container.encoder().into(),
        };
        let Some(formats) = pixel_formats(programs, &name)? else {
            return refused(format!(
                "expected an encoder of pictures that this ffmpeg has, found {name}; ffmpeg -encoders lists them"
            ));
        };
        let pixel_format = match &encoding.pixel_format {
            Some(asked) if formats.is_empty() || formats.contains(asked) => asked.clone(),
            Some(asked) => {
                return refused(format!("{name} does not take {asked}; it takes {}", formats.join(", ")));
            }
            None => {
                let nearest = |format: &&String| Samples::of_name(format).map(|samples| source.distance(samples));
                let known = formats.iter().filter(|format| nearest(format).is_some());
                match known.min_by_key(nearest) {
                    // An encoder that accepts any format lists none.
                    None if formats.is_empty() => source.name(),
                    None => {
                        return refused(format!(
                            "{name} takes {} alone; choose one with --pixel-format",
                            formats.join(", ")
                        ));
                    }
                    Some(nearest) => nearest.clone(),
                }
            }
        };
        let Some(samples) = Samples::of_name(&pixel_format) else {
            return refused(format!("{pixel_format} has transparency, a palette, or a sampling that is not written"));
        };
        let mut options = encoding.options.clone();
        if name == LOSSLESS && options.is_empty() {
            // Version 3 has slices for threads, and checksums. Intra-only frames can be cut everywhere.
            options =
                [("level", "3"), ("g", "1"), ("slicecrc", "1")].map(|(name, value)| (name.into(), value.into())).into();
        }
        let crf = encoding.crf.or(default_crf(&name).filter(|_| !chooses_rate(&options)));
        Ok(Self { name, pixel_format, samples, crf, options })
    }

    /// The options of ffmpeg for the track of this number, without the time base.
    pub(crate) fn arguments(&self, track: usize, light: Option<&crate::colour::Light>) -> Vec<String> {
        let mut all = Vec::new();
        let mut add = |name: &str, value: String| all.extend([format!("-{name}:{track}"), value]);
        add("c", self.name.clone());
        add("pix_fmt", self.pixel_format.clone());
        add("fps_mode", "passthrough".into());
        if let Some(crf) = self.crf {
            add("crf", crf.to_string());
            if self.name.starts_with("libvpx") || self.name.starts_with("libaom") {
                // Without this option, the factor would only bound a bit rate.
                add("b", "0".into());
            }
        }
        let light = light.and_then(|light| Some((light_option(&self.name)?, light)));
        let mut light = light.map(|((option, names), light)| (option, light.parameters(names)));
        for (name, value) in &self.options {
            match &light {
                Some((option, parameters)) if option == name => {
                    add(name, format!("{value}:{parameters}"));
                    light = None;
                }
                _ => add(name, value.clone()),
            }
        }
        if let Some((option, parameters)) = light {
            add(option, parameters);
        }
        all
    }

    /// Whether the encoder writes a film's light metadata.
    pub(crate) fn says_light(&self) -> bool {
        light_option(&self.name).is_some()
    }
}

/// The option for parameters of the encoder's own, and the names of those that describe light.
fn light_option(encoder: &str) -> Option<(&'static str, [&'static str; 2])> {
    match encoder {
        "libx264" => Some(("x264-params", ["mastering-display", "cll"])),
        "libx265" => Some(("x265-params", ["master-display", "max-cll"])),
        _ => None,
    }
}

/// The default rate factor: details that took hours to compute should not be lost in the encoder.
fn default_crf(encoder: &str) -> Option<f64> {
    match encoder {
        "libx264" => Some(18.0),
        "libx265" => Some(20.0),
        "libvpx-vp9" => Some(24.0),
        _ => None,
    }
}

/// Whether the options set the bit rate in another way.
fn chooses_rate(options: &[(String, String)]) -> bool {
    options.iter().any(|(name, _)| matches!(name.as_str(), "b" | "qp" | "q" | "crf" | "lossless" | "global_quality"))
}

/// The pixel formats that an encoder accepts, empty if it does not list them; `None` if there is no video encoder of
/// this name.
fn pixel_formats(programs: Programs, encoder: &str) -> Result<Option<Vec<String>>> {
    let mut command = programs.ffmpeg();
    let output = command
        .args(["-h", &format!("encoder={encoder}")])
        .stdin(Stdio::null())
        .output()
        .map_err(|source| Error::Start { program: "ffmpeg", source })?;
    Ok(listed(&String::from_utf8_lossy(&output.stdout)))
}

/// The pixel formats in ffmpeg's help on an encoder. If a codec has several encoders, the first one is used.
fn listed(help: &str) -> Option<Vec<String>> {
    let mut lines = help.lines().skip_while(|line| !line.starts_with("Encoder "));
    lines.next()?;
    let lines = lines.take_while(|line| !line.starts_with("Encoder "));
    let mut is_sound = false;
    for line in lines {
        let line = line.trim_start();
        if let Some(formats) = line.strip_prefix("Supported pixel formats:") {
            return Some(formats.split_whitespace().map(str::to_owned).collect());
        }
        is_sound |= line.starts_with("Supported sample") || line.starts_with("Supported channel");
    }
    (!is_sound).then(Vec::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_on_an_encoder_lists_its_formats() {
        let help = "Encoder libx264 [H.264]:\n    General capabilities: delay\n    Supported pixel formats: yuv420p nv12\n\
                    libx264 AVOptions:\n\nEncoder h264_v4l2m2m [V4L2]:\n    Supported pixel formats: vaapi\n";
        assert_eq!(listed(help), Some(vec!["yuv420p".into(), "nv12".into()]));
        assert_eq!(listed("Encoder v [x]:\n"), Some(Vec::new()));
        assert_eq!(
            listed("Encoder aac [x]:\n    Supported sample rates: 1 2\n    Supported sample formats: fltp\n"),
            None
        );
        assert_eq!(listed("Codec 'nope' is not recognized by FFmpeg.\n"), None);
        assert_eq!(listed(""), None);
    }

    #[test]
    fn light_joins_the_parameters_of_the_user() {
        let encoder = Encoder {
            name: "libx265".into(),
            pixel_format: "yuv420p10le".into(),
            samples: Samples::of_name("yuv420p10le").unwrap(),
            crf: Some(20.0),
            options: vec![("x265-params".into(), "aq-mode=3".into()), ("preset".into(), "fast".into())],
        };
        let light = crate::colour::Light { display: None, content: Some([1000, 400]) };
        let text = encoder.arguments(2, Some(&light)).join(" ");
        assert_eq!(
            text,
            "-c:2 libx265 -pix_fmt:2 yuv420p10le -fps_mode:2 passthrough -crf:2 20 -x265-params:2 \
             aq-mode=3:max-cll=1000,400 -preset:2 fast"
        );
    }
}
