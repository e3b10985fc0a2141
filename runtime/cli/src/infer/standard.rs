//! Pictures from standard input and pipes, and to standard output.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tileforge_files::unfinished;
use tileforge_image::{Error as ImageError, Format, Header, ImageWriter, RowSink};

use super::super::failure::Failure;

/// The most bytes of an encoded picture.
const PICTURE_BYTES_MAXIMUM: u64 = 8 << 30;

/// The name of the picture on standard input in messages.
pub(super) const STANDARD_INPUT: &str = "standard input";

/// Begins streams of frames.
const FRAMES: &[u8] = b"YUV4MPEG2";

/// Pictures that came through a pipe, by name. They are kept in unnamed temporary files, because decoders seek.
#[derive(Clone, Debug, Default)]
pub(super) struct Piped(Arc<BTreeMap<PathBuf, File>>);

impl Piped {
    /// Reads the picture on standard input to its end.
    pub(super) fn standard_input() -> Result<Self, Failure> {
        let name = PathBuf::from(STANDARD_INPUT);
        let file = kept(io::stdin().lock(), &name)?;
        Ok(Self(Arc::new(BTreeMap::from([(name, file)]))))
    }

    /// Reads the inputs that are named pipes, each to its end. Their writers may take any time.
    pub(super) fn named<'p>(inputs: impl IntoIterator<Item = &'p Path>) -> Result<Self, Failure> {
        let mut all = BTreeMap::new();
        for input in inputs {
            if tileforge_files::is_named_pipe(input) && !all.contains_key(input) {
                let pipe = File::open(input).map_err(|source| Failure::file(input, "open", source))?;
                all.insert(input.to_owned(), kept(pipe, input)?);
            }
        }
        Ok(Self(Arc::new(all)))
    }

    /// The file of an input that came through a pipe.
    pub(super) fn file_of(&self, input: &Path) -> Option<io::Result<File>> {
        let file = self.0.get(input)?;
        // All handles share one position, and a picture is read once.
        Some(file.try_clone().and_then(|mut file| file.rewind().map(|()| file)))
    }
}

/// Whether frames come on standard input. Waits for its first bytes, and leaves them there.
pub(super) fn frames_on_standard_input() -> bool {
    // Nothing at all is reported by the reader of frames.
    io::stdin()
        .lock()
        .fill_buf()
        .map_or(true, |start| start.is_empty() || FRAMES.starts_with(&start[..start.len().min(FRAMES.len())]))
}

/// Copies a pipe's contents to an unnamed temporary file.
fn kept(pipe: impl Read, name: &Path) -> Result<File, Failure> {
    let unread = |source| Failure::file(name, "read", source);
    let mut file = tempfile::tempfile().map_err(|source| Failure::file(name, "keep", source))?;
    let mut pipe = BufReader::new(pipe).take(PICTURE_BYTES_MAXIMUM + 1);
    if io::copy(&mut pipe, &mut file).map_err(unread)? > PICTURE_BYTES_MAXIMUM {
        let problem = format!("expected at most {PICTURE_BYTES_MAXIMUM} bytes of a picture, found more");
        return Err(ImageError::image(name, problem).into());
    }
    Ok(file)
}

/// A picture that is written to standard output when it is complete.
pub(super) struct ToStandardOutput {
    writer: Box<ImageWriter>,
    path: PathBuf,
    /// Removed when this value is dropped.
    _folder: unfinished::Folder,
}

impl ToStandardOutput {
    /// A picture of this format, written by what `with` makes of its writer.
    pub(super) fn new(
        format: Format,
        header: Header,
        with: impl FnOnce(ImageWriter) -> ImageWriter,
    ) -> tileforge_image::Result<Self> {
        let name = Path::new("standard output");
        let folder = unfinished::folder_in(&std::env::temp_dir());
        let folder = folder.map_err(|source| failed(name, "keep a file for", source))?;
        let path = folder.path().join("picture");
        let writer = Box::new(with(ImageWriter::create(&path, format, header)?));
        Ok(Self { writer, path, _folder: folder })
    }
}

fn failed(path: &Path, action: &'static str, source: io::Error) -> ImageError {
    ImageError::File { path: path.to_owned(), action, source }
}

impl RowSink for ToStandardOutput {
    fn header(&self) -> &Header {
        self.writer.header()
    }

    fn write_rows(&mut self, rows: &[u8]) -> tileforge_image::Result<()> {
        self.writer.write_rows(rows)
    }

    fn finish(self: Box<Self>) -> tileforge_image::Result<()> {
        let Self { writer, path, _folder } = *self;
        writer.finish()?;
        let unwritten = |source| failed(Path::new("standard output"), "write", source);
        let mut file = File::open(&path).map_err(unwritten)?;
        let mut output = io::stdout().lock();
        io::copy(&mut file, &mut output).map_err(unwritten)?;
        output.flush().map_err(unwritten)
    }
}
