//! The colour tags of a film, by ffmpeg's names.

use serde::Deserialize;
use tileforge_image::Size;
use tileforge_image::frames::{ChromaLocation, Matrix};

/// The colour tags of a film; `None` for a missing tag.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct ColourTags {
    #[serde(rename = "color_range")]
    pub(crate) range: Option<String>,
    #[serde(rename = "color_space")]
    pub(crate) matrix: Option<String>,
    #[serde(rename = "color_primaries")]
    pub(crate) primaries: Option<String>,
    #[serde(rename = "color_transfer")]
    pub(crate) transfer: Option<String>,
    #[serde(rename = "chroma_location")]
    pub(crate) location: Option<String>,
}

impl ColourTags {
    /// The same tags, without tags that mean "unknown" and tags that are not names.
    pub(crate) fn known(self) -> Self {
        let known = |tag: Option<String>| {
            let is_name = |tag: &String| {
                let plain = tag.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
                plain && !matches!(tag.as_str(), "" | "unknown" | "unspecified" | "reserved")
            };
            tag.filter(is_name)
        };
        Self {
            range: known(self.range),
            matrix: known(self.matrix),
            primaries: known(self.primaries),
            transfer: known(self.transfer),
            location: known(self.location),
        }
    }

    /// The equivalent options of ffmpeg's decoders and encoders, with their values.
    pub(crate) fn options(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [
            ("-color_range", &self.range),
            ("-colorspace", &self.matrix),
            ("-color_primaries", &self.primaries),
            ("-color_trc", &self.transfer),
            ("-chroma_sample_location", &self.location),
        ];
        // ffprobe and the options have different names for some values.
        let named = |option, value| match (option, value) {
            ("-colorspace", "gbr") => "rgb",
            ("-color_trc", "bt470m") => "gamma22",
            ("-color_trc", "bt470bg") => "gamma28",
            (_, same) => same,
        };
        all.into_iter().filter_map(move |(option, tag)| Some((option, named(option, tag.as_deref()?))))
    }

    /// The matrix from red, green and blue to luma and chroma.
    pub(crate) fn matrix(&self, size: Size, asked: Option<Matrix>) -> Result<Matrix, String> {
        match self.matrix.as_deref() {
            None => Ok(asked.unwrap_or(Matrix::likely(size))),
            // The matrix of an RGB film has no information about planes of luma.
            Some("gbr") => Ok(Matrix::likely(size)),
            Some("bt709") => Ok(Matrix::Bt709),
            Some("smpte170m" | "bt470bg") => Ok(Matrix::Bt601),
            Some("bt2020nc" | "bt2020_ncl") => Ok(Matrix::Bt2020),
            Some("smpte240m") => Ok(Matrix::Smpte240m),
            Some("fcc") => Ok(Matrix::Fcc),
            Some(other) => Err(other.into()),
        }
    }

    /// The position of chroma samples. The default is left, as in MPEG-2 and later.
    pub(crate) fn location(&self) -> ChromaLocation {
        match self.location.as_deref() {
            Some("center") => ChromaLocation::Center,
            Some("topleft") => ChromaLocation::TopLeft,
            _ => ChromaLocation::Left,
        }
    }

    /// The tags of a film of another size. Without a tag, players guess the matrix from the number of lines. So the
    /// matrix is stated if the guess for the old or the new size would differ from it.
    pub(crate) fn resized(&self, from: Size, to: Size, matrix: Matrix) -> Self {
        let guessed = self.matrix.is_none() && (Matrix::likely(to) != matrix || Matrix::likely(from) != matrix);
        Self { matrix: if guessed { Some(name(matrix).into()) } else { self.matrix.clone() }, ..self.clone() }
    }

    /// The name of the high dynamic range curve, for messages.
    pub(crate) fn hdr_curve(&self) -> Option<&'static str> {
        match self.transfer.as_deref() {
            Some("smpte2084") => Some("PQ"),
            Some("arib-std-b67") => Some("HLG"),
            _ => None,
        }
    }
}

/// ffmpeg's name of a matrix.
pub(crate) fn name(matrix: Matrix) -> &'static str {
    match matrix {
        Matrix::Bt601 => "smpte170m",
        Matrix::Bt709 => "bt709",
        Matrix::Bt2020 => "bt2020nc",
        Matrix::Smpte240m => "smpte240m",
        Matrix::Fcc => "fcc",
    }
}

/// The metadata of an HDR film about its mastering display and its light levels.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Light {
    /// x and y of red, green, blue and white, then the largest and the least luminance in cd/m².
    pub(crate) display: Option<[f64; 10]>,
    /// The largest light of a pixel and of the average of a frame, in cd/m².
    pub(crate) content: Option<[u64; 2]>,
}

impl Light {
    /// The equivalent parameters of x264 and x265. `names` are the parameters' names for the display and for the
    /// content.
    pub(crate) fn parameters(&self, names: [&str; 2]) -> String {
        let mut all = Vec::new();
        if let Some([red_x, red_y, green_x, green_y, blue_x, blue_y, white_x, white_y, most, least]) = self.display {
            let place = |x: f64, y: f64| format!("({:.0},{:.0})", x * 50_000.0, y * 50_000.0);
            all.push(format!(
                "{}=G{}B{}R{}WP{}L({:.0},{:.0})",
                names[0],
                place(green_x, green_y),
                place(blue_x, blue_y),
                place(red_x, red_y),
                place(white_x, white_y),
                most * 10_000.0,
                least * 10_000.0
            ));
        }
        if let Some([largest, average]) = self.content {
            all.push(format!("{}={largest},{average}", names[1]));
        }
        all.join(":")
    }

    pub(crate) fn is_said(&self) -> bool {
        self.display.is_some() || self.content.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrix_is_said_where_players_would_guess_another() {
        let (small, large) = (Size { width: 640, height: 480 }, Size { width: 2560, height: 1920 });
        let tags = ColourTags::default();
        assert_eq!(tags.matrix(small, None), Ok(Matrix::Bt601));
        assert_eq!(tags.resized(small, large, Matrix::Bt601).matrix.as_deref(), Some("smpte170m"));
        assert_eq!(tags.resized(small, small, Matrix::Bt601).matrix, None);
        assert_eq!(tags.resized(large, large, Matrix::Bt709).matrix, None);
        assert_eq!(tags.resized(small, small, Matrix::Bt709).matrix.as_deref(), Some("bt709"));
        let known = ColourTags { matrix: Some("bt709".into()), range: Some("un/known".into()), ..tags }.known();
        assert_eq!((known.resized(small, large, Matrix::Bt709).matrix.as_deref(), known.range), (Some("bt709"), None));
    }

    #[test]
    fn light_has_the_form_of_x265() {
        let light = Light {
            display: Some([0.708, 0.292, 0.17, 0.797, 0.131, 0.046, 0.3127, 0.329, 1000.0, 0.005]),
            content: Some([1000, 400]),
        };
        assert_eq!(
            light.parameters(["master-display", "max-cll"]),
            "master-display=G(8500,39850)B(6550,2300)R(35400,14600)WP(15635,16450)L(10000000,50):max-cll=1000,400"
        );
    }
}
