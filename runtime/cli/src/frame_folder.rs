//! A folder with a PNG for each frame of a clip.

use std::fs;
use std::path::{Path, PathBuf};

use tileforge_files::unfinished;
use tileforge_image::{Depth, Format, ImageWriter};
use tileforge_runtime::pixels::Pixels;
use tileforge_runtime::{Error, Result};

use super::failure::Failure;

/// A folder that gets its name when it has all frames. Dropped unfinished, it leaves nothing behind.
pub(super) struct FrameFolder {
    place: PathBuf,
    /// The temporary folder of the frames, beside `place`; made with the first frame.
    unfinished: Option<unfinished::Folder>,
}

/// The folder of the frames within the unfinished one, which only its owner may read.
const FRAMES: &str = "frames";

impl FrameFolder {
    /// A folder at this place, which must be free or an empty folder: frames of two clips do not mix.
    pub(super) fn at(place: &Path) -> Result<Self, Failure> {
        let found = if place.is_dir() {
            let mut entries = fs::read_dir(place).map_err(|source| Failure::file(place, "list", source))?;
            entries.next().map(|_| "one that holds files")
        } else {
            place.symlink_metadata().ok().map(|_| "a file")
        };
        match found {
            Some(found) => {
                let expected = "expected a new or an empty folder for the frames";
                Err(Failure::Usage(format!("{}: {expected}, found {found}", place.display())))
            }
            None => Ok(Self { place: place.to_owned(), unfinished: None }),
        }
    }

    /// Adds a frame.
    pub(super) fn write(&mut self, frame: &Pixels, number: u64) -> Result<()> {
        let folder = match &self.unfinished {
            Some(unfinished) => unfinished.path().join(FRAMES),
            None => self.begin()?,
        };
        let path = folder.join(format!("{number:06}.png"));
        let written = ImageWriter::create(&path, Format::Png, frame.header(Depth::Eight));
        let written = written.map_err(Error::from).and_then(|writer| frame.write(Box::new(writer)));
        written.map_err(|error| self.relocated(error, &folder))
    }

    /// Makes the unfinished folder, and returns the folder of the frames.
    fn begin(&mut self) -> Result<PathBuf> {
        let failed =
            |path: &Path, action, source| tileforge_image::Error::File { path: path.to_owned(), action, source };
        let parent = self.place.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(parent).map_err(|source| failed(parent, "create", source))?;
        let unfinished =
            unfinished::folder_in(parent).map_err(|source| failed(parent, "create a folder in", source))?;
        let frames = unfinished.path().join(FRAMES);
        fs::create_dir(&frames).map_err(|source| failed(&self.place, "create", source))?;
        self.unfinished = Some(unfinished);
        Ok(frames)
    }

    /// Replaces the unfinished folder's path in an error by the final path.
    fn relocated(&self, error: Error, from: &Path) -> Error {
        match error {
            Error::Image(tileforge_image::Error::File { path, action, source }) => {
                let path = unfinished::relocated(&path, from, &self.place);
                tileforge_image::Error::File { path, action, source }.into()
            }
            other => other,
        }
    }

    /// Gives the folder its name.
    pub(super) fn finish(self) -> Result<()> {
        let Some(unfinished) = self.unfinished else { return Ok(()) };
        let _finishing = unfinished::finishing();
        let renamed = fs::rename(unfinished.path().join(FRAMES), &self.place);
        let failed = |source| tileforge_image::Error::File { path: self.place.clone(), action: "create", source };
        Ok(renamed.map_err(failed)?)
    }
}
