//! Files that people mistake for checkpoints, by their first bytes.

use std::fmt;

/// A file that is not a checkpoint, judged by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherFormat {
    /// The format, with its article.
    pub name: &'static str,
    /// What such files hold.
    pub kind: FormatKind,
}

/// The content of a file that is not a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FormatKind {
    /// Pixels.
    Picture,
    /// Frames.
    Film,
    /// An ONNX graph.
    Graph,
    /// Arrays of numbers without a network.
    Arrays,
    /// Weights that were converted for another program.
    Converted,
    /// Files that are packed together.
    Archive,
    /// A web page or a pointer that a server or a version control system gives in place of a file.
    Placeholder,
    /// Text.
    Text,
}

impl fmt::Display for OtherFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expected = match self.kind {
            FormatKind::Picture | FormatKind::Film | FormatKind::Graph | FormatKind::Arrays | FormatKind::Text => {
                "a checkpoint: safetensors, or a file of `torch.save`"
            }
            FormatKind::Converted => "the checkpoint that it was made from",
            FormatKind::Archive => "the checkpoint itself; unpack it first",
            FormatKind::Placeholder => "the checkpoint itself; download it again",
        };
        write!(f, "this is {}; expected {expected}", self.name)
    }
}

/// The first bytes of formats: their offset, the bytes, the format's name, and the kind.
const SIGNATURES: [(usize, &[u8], &str, FormatKind); 29] = [
    (0, b"\x89PNG\r\n\x1a\n", "a PNG picture", FormatKind::Picture),
    (0, b"\xff\xd8\xff", "a JPEG picture", FormatKind::Picture),
    (0, b"GIF8", "a GIF picture", FormatKind::Picture),
    (8, b"WEBP", "a WebP picture", FormatKind::Picture),
    (0, b"II*\0", "a TIFF picture", FormatKind::Picture),
    (0, b"MM\0*", "a TIFF picture", FormatKind::Picture),
    (0, b"II+\0", "a TIFF picture", FormatKind::Picture),
    (0, b"MM\0+", "a TIFF picture", FormatKind::Picture),
    (0, b"BM", "a BMP picture", FormatKind::Picture),
    (0, b"v/1\x01", "an OpenEXR picture", FormatKind::Picture),
    (4, b"ftypavif", "an AVIF picture", FormatKind::Picture),
    (4, b"ftyphei", "a HEIF picture", FormatKind::Picture),
    (4, b"ftyp", "an MP4 film", FormatKind::Film),
    (0, b"\x1aE\xdf\xa3", "a Matroska film", FormatKind::Film),
    (0, b"YUV4MPEG2", "a Y4M film", FormatKind::Film),
    (0, b"\x93NUMPY", "a .npy file", FormatKind::Arrays),
    (0, b"GGUF", "a GGUF file", FormatKind::Converted),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file", FormatKind::Converted),
    (4, b"TFL3", "a TensorFlow Lite file", FormatKind::Converted),
    (0, b"\x1f\x8b", "a gzip archive", FormatKind::Archive),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", FormatKind::Archive),
    (0, b"Rar!", "a RAR archive", FormatKind::Archive),
    (0, b"\xfd7zXZ\0", "an xz archive", FormatKind::Archive),
    (0, b"\x28\xb5\x2f\xfd", "a Zstandard archive", FormatKind::Archive),
    (0, b"version https://git-lfs", "a pointer of Git LFS", FormatKind::Placeholder),
    (0, b"<!DOCTYPE", "a web page", FormatKind::Placeholder),
    (0, b"<!doctype", "a web page", FormatKind::Placeholder),
    (0, b"<html", "a web page", FormatKind::Placeholder),
    (0, b"%PDF", "a PDF document", FormatKind::Text),
];

/// Number of bytes that are examined to recognise text.
const TEXT: usize = 512;

/// The format of a file that is not a checkpoint; `None` if its bytes do not show it.
pub fn other_format(file: &[u8]) -> Option<OtherFormat> {
    // A damaged file of safetensors: the length of its header can be any first bytes.
    if file.get(8) == Some(&b'{') {
        return None;
    }
    let known = SIGNATURES.iter().find(|(place, signature, ..)| {
        file.get(*place..).is_some_and(|rest| rest.starts_with(signature))
            // These letters are also in other files of this container.
            && (*signature != b"WEBP" || file.starts_with(b"RIFF"))
    });
    if let Some((_, _, name, kind)) = known {
        return Some(OtherFormat { name, kind: *kind });
    }
    if is_graph(file) {
        return Some(OtherFormat { name: "an ONNX graph", kind: FormatKind::Graph });
    }
    let first = &file[..file.len().min(TEXT)];
    // A character may be cut at the end.
    let text = match std::str::from_utf8(first) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => std::str::from_utf8(&first[..error.valid_up_to()]).ok()?,
        Err(_) => return None,
    };
    let is_text = !text.is_empty() && !text.chars().any(|c| c.is_control() && !c.is_ascii_whitespace());
    is_text.then_some(OtherFormat { name: "a text file", kind: FormatKind::Text })
}

/// Whether a file begins as an ONNX model: with the version of its format, and another of the model's first fields.
fn is_graph(file: &[u8]) -> bool {
    let &[0x08, 1..=64, next, ..] = file else { return false };
    // Fields 2 to 8, with a length or a number; writers put them in their order.
    let (field, wire) = (next >> 3, next & 7);
    (2..=8).contains(&field) && (wire == 2 || (wire == 0 && field == 5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_from_their_first_bytes() {
        for (bytes, expected) in [
            (&b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], Some(FormatKind::Picture)),
            (b"RIFF\x10\0\0\0WEBPVP8 ", Some(FormatKind::Picture)),
            (b"xxxx\x10\0\0\0WEBP\xff", None),
            (b"\0\0\0\x20ftypavif", Some(FormatKind::Picture)),
            (b"\0\0\0\x20ftypisom", Some(FormatKind::Film)),
            (b"\x08\x09\x12\x13Tileforge exporter", Some(FormatKind::Graph)),
            (b"\x08\x08:\x90\x01\x0a", Some(FormatKind::Graph)),
            (b"\x08\x80\x12\0", None),
            (b"\x08", None),
            (b"version https://git-lfs.github.com/spec/v1\noid", Some(FormatKind::Placeholder)),
            (b"name: compact-x4\ntask: upscale\n", Some(FormatKind::Text)),
            ("ä".repeat(400).as_bytes(), Some(FormatKind::Text)),
            (b"text\0", None),
            (b"BM\0\0\0\0\0\0{\"a\":", None),
            (b"\xff\xfe", None),
            (b"", None),
        ] {
            assert_eq!(other_format(bytes).map(|found| found.kind), expected, "{}", bytes.escape_ascii());
        }
        let long = ["x".repeat(TEXT - 1), "ä".to_owned()].concat();
        assert_eq!(other_format(long.as_bytes()).unwrap().name, "a text file");
        let gguf = other_format(b"GGUF\x03\0").unwrap().to_string();
        assert_eq!(gguf, "this is a GGUF file; expected the checkpoint that it was made from");
    }
}
