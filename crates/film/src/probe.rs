//! The JSON output of ffprobe about a file.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::colour::{ColourTags, Light};

/// The output of ffprobe about a file.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Probe {
    #[serde(default)]
    pub(crate) streams: Vec<ProbedStream>,
    #[serde(default)]
    pub(crate) format: ProbedFormat,
    #[serde(default)]
    pub(crate) frames: Vec<ProbedFrame>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct ProbedFormat {
    /// Seconds.
    pub(crate) start_time: Option<String>,
}

/// A track.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ProbedStream {
    pub(crate) index: usize,
    pub(crate) codec_type: Option<String>,
    pub(crate) codec_name: Option<String>,
    pub(crate) width: Option<u32>,
    pub(crate) height: Option<u32>,
    pub(crate) pix_fmt: Option<String>,
    pub(crate) field_order: Option<String>,
    pub(crate) start_time: Option<String>,
    pub(crate) nb_read_packets: Option<String>,
    #[serde(flatten)]
    pub(crate) colour: ColourTags,
    #[serde(default)]
    pub(crate) disposition: BTreeMap<String, Value>,
    #[serde(default)]
    pub(crate) tags: BTreeMap<String, Value>,
    #[serde(default, rename = "side_data_list")]
    pub(crate) side_data: Vec<SideData>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ProbedFrame {
    pub(crate) interlaced_frame: Option<i64>,
    #[serde(default, rename = "side_data_list")]
    pub(crate) side_data: Vec<SideData>,
}

/// Side data of a track or a frame.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct SideData {
    #[serde(rename = "side_data_type")]
    pub(crate) kind: Option<String>,
    #[serde(flatten)]
    values: BTreeMap<String, Value>,
}

impl Probe {
    /// Reads the JSON of ffprobe.
    ///
    /// # Errors
    /// It is not ffprobe's JSON.
    pub fn of_json(json: &[u8]) -> serde_json::Result<Self> {
        // If the JSON is not an object, the error states the reason.
        serde_json::from_slice::<BTreeMap<String, IgnoredAny>>(json)?;
        serde_json::from_slice(json)
    }

    /// The light metadata of the frames.
    pub(crate) fn light(&self, stream: &ProbedStream) -> Light {
        let all = || stream.side_data.iter().chain(self.frames.iter().flat_map(|frame| &frame.side_data));
        let find = |kind: &str| all().find(|data| data.kind.as_deref() == Some(kind));
        let mut light = Light::default();
        if let Some(data) = find("Mastering display metadata") {
            let names = [
                "red_x",
                "red_y",
                "green_x",
                "green_y",
                "blue_x",
                "blue_y",
                "white_point_x",
                "white_point_y",
                "max_luminance",
                "min_luminance",
            ];
            let values: Option<Vec<f64>> = names.iter().map(|name| data.ratio(name)).collect();
            light.display = values.and_then(|values| values.try_into().ok());
        }
        if let Some(data) = find("Content light level metadata") {
            let value = |name| data.values.get(name).and_then(Value::as_u64);
            light.content = value("max_content").zip(value("max_average")).map(|(most, average)| [most, average]);
        }
        light
    }

    /// Dynamic metadata of an HDR film, which differs from frame to frame and is not written.
    pub(crate) fn changing_light(&self, stream: &ProbedStream) -> Option<String> {
        let kinds = stream.side_data.iter().chain(self.frames.iter().flat_map(|frame| &frame.side_data));
        let mut kinds = kinds.filter_map(|data| data.kind.as_deref());
        kinds
            .find(|kind| {
                kind.contains("DOVI")
                    || kind.contains("Dolby Vision")
                    || kind.contains("HDR10+")
                    || kind.contains("HDR Dynamic")
            })
            .map(str::to_owned)
    }
}

impl ProbedStream {
    pub(crate) fn is(&self, kind: &str) -> bool {
        self.codec_type.as_deref() == Some(kind)
    }

    pub(crate) fn has_disposition(&self, name: &str) -> bool {
        self.disposition.get(name).and_then(Value::as_i64) == Some(1)
    }

    /// Its dispositions as an option of ffmpeg.
    pub(crate) fn dispositions(&self) -> String {
        let is_name = |name: &&str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        let set = self.disposition.keys().map(String::as_str).filter(|name| self.has_disposition(name)).filter(is_name);
        let set = set.collect::<Vec<_>>().join("+");
        if set.is_empty() { "0".into() } else { set }
    }

    /// The rotation that players apply, in degrees.
    pub(crate) fn rotation(&self) -> i64 {
        let rotation = |data: &SideData| {
            let value = data.values.get("rotation")?;
            value.as_i64().or_else(|| value.as_f64().map(|degrees| degrees as i64))
        };
        self.side_data.iter().find_map(rotation).unwrap_or(0)
    }
}

impl SideData {
    /// A value such as `34000/50000`.
    fn ratio(&self, name: &str) -> Option<f64> {
        let (numerator, denominator) = self.values.get(name)?.as_str()?.split_once('/')?;
        let (numerator, denominator) = (numerator.parse::<f64>().ok()?, denominator.parse::<f64>().ok()?);
        (denominator > 0.0 && numerator.is_finite()).then(|| numerator / denominator)
    }
}

/// Seconds as ffprobe writes them.
pub(crate) fn seconds(text: Option<&String>) -> Option<f64> {
    text?.parse::<f64>().ok().filter(|seconds| seconds.is_finite())
}
