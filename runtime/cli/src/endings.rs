//! The meaning of file name endings to other programs.
//!
//! Other programs open a file by its ending: `.mp4` is an MP4. So an output is never written with the ending of
//! another format.

use std::path::Path;

use super::failure::{CommandResult, Failure};

/// Endings by which other programs recognise files.
const KNOWN: [&str; 82] = [
    // Films.
    "3gp",
    "264",
    "265",
    "apng",
    "asf",
    "av1",
    "avi",
    "flv",
    "h264",
    "h265",
    "hevc",
    "ivf",
    "m2ts",
    "m2v",
    "m4v",
    "mkv",
    "mov",
    "mp4",
    "mpeg",
    "mpg",
    "mts",
    "mxf",
    "ogm",
    "ogv",
    "ts",
    "vob",
    "webm",
    "wmv",
    "y4m",
    // Sounds.
    "aac",
    "flac",
    "m4a",
    "mp3",
    "ogg",
    "opus",
    "wav",
    // Pictures.
    "avif",
    "bmp",
    "dds",
    "dib",
    "dng",
    "exr",
    "gif",
    "hdr",
    "heic",
    "heif",
    "ico",
    "jfif",
    "jp2",
    "jpe",
    "jpeg",
    "jpg",
    "jxl",
    "pbm",
    "pdf",
    "pgm",
    "png",
    "pnm",
    "ppm",
    "psd",
    "qoi",
    "svg",
    "tga",
    "tif",
    "tiff",
    "webp",
    "xcf",
    // Tensors, models, archives and texts.
    "7z",
    "ckpt",
    "gz",
    "json",
    "npy",
    "npz",
    "onnx",
    "pt",
    "pth",
    "safetensors",
    "tar",
    "txt",
    "yaml",
    "zip",
    "zst",
];

/// The ending of a name if other programs know it; `None` for other endings, and for existing folders.
pub(crate) fn known(path: &Path) -> Option<String> {
    let ending = path.extension()?.to_str()?.to_ascii_lowercase();
    (KNOWN.contains(&ending.as_str()) && !path.is_dir()).then_some(ending)
}

/// Refuses an output name for frames whose known ending is not `written`, the ending of the written format, if there
/// is one.
pub(crate) fn check_frames(output: &Path, written: Option<&str>) -> CommandResult {
    match known(output).filter(|ending| Some(ending.as_str()) != written) {
        None => Ok(()),
        Some(ending) => {
            let what = if written.is_some() { "YUV4MPEG2 frames" } else { "raw frames" };
            let name = if written.is_some() { "a name that ends in .y4m" } else { "a name such as large.rgb" };
            Err(Failure::Usage(format!(
                "{}: {what} are no .{ending}; expected {name}, or - for a program that makes one: … --output - | \
                 ffmpeg -i - out.{ending}",
                output.display()
            )))
        }
    }
}

/// Refuses a new folder with the ending of a file. A separator at the end of the name marks it as a folder.
pub(crate) fn check_folder(output: &Path) -> CommandResult {
    let is_folder = output.as_os_str().as_encoded_bytes().last() == Some(&b'/');
    match known(output).filter(|_| !is_folder) {
        None => Ok(()),
        Some(ending) => Err(Failure::Usage(format!(
            "{}: a folder is written here, and .{ending} means a file; give another name, or add a /",
            output.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(result: CommandResult) -> bool {
        matches!(result, Err(Failure::Usage(_)))
    }

    #[test]
    fn frames_go_under_no_name_of_another_format() {
        for name in ["b.mp4", "b.MKV", "a/b.mov", "b.gif", "b.png", "b.zip", "é.Mp4", ".x.webm"] {
            assert!(refused(check_frames(Path::new(name), Some("y4m"))), "{name}");
            assert!(refused(check_frames(Path::new(name), None)), "{name}");
        }
        assert!(refused(check_frames(Path::new("b.y4m"), None)));
        for name in ["b.y4m", "b.Y4M", "-", "frames", "b.2024", ".mp4", "/dev/stdout"] {
            assert!(check_frames(Path::new(name), Some("y4m")).is_ok(), "{name}");
        }
        for name in ["b.rgb", "b.raw", "b.yuv", "-", "b"] {
            assert!(check_frames(Path::new(name), None).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_folder_has_no_name_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let existing = folder.path().join("old.zip");
        std::fs::create_dir(&existing).unwrap();
        assert!(check_folder(&existing).is_ok());
        assert!(refused(check_folder(&folder.path().join("new.zip"))) && refused(check_folder(Path::new("x.png"))));
        assert!(check_folder(Path::new("x.png/")).is_ok() && check_folder(Path::new("v1.5")).is_ok());
    }
}
