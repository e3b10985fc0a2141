//! Which picture goes where.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tileforge_files::outputs;
use tileforge_image::Format;
use tileforge_image::frames::RawFrames;

use super::super::failure::Failure;
use super::arguments::Arguments;
use super::kind::{has_frames, is_standard_stream};

/// One picture to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Assignment {
    pub(super) input: PathBuf,
    pub(super) output: PathBuf,
}

/// Pairs each input with its output, and says which folder has to be there for them.
///
/// One file goes to a file, unless the output is a folder or ends with a separator; several files,
/// or a folder, go to a folder, where `name_for` gives their names. Two inputs for one output, and an output that is an
/// input, are refused before any work.
pub(super) fn assign(
    inputs: &[PathBuf],
    output: &Path,
    name_for: impl Fn(&Path) -> PathBuf,
) -> Result<(Vec<Assignment>, Option<PathBuf>), Failure> {
    let single = matches!(inputs, [input] if !input.is_dir() && !is_pattern(input));
    let to_folder = !single || output.is_dir() || ends_with_separator(output);
    if to_folder && inputs.iter().any(|input| is_standard_stream(input)) {
        return Err(Failure::Usage("standard input (-) goes alone, and to a file or standard output".into()));
    }
    if to_folder && is_standard_stream(output) {
        return Err(Failure::Usage(
            "expected one stream of frames for standard output (-), found several inputs".into(),
        ));
    }
    let mut assignments = Vec::new();
    for input in pictures(inputs)? {
        let output = if to_folder { output.join(name_for(&input)) } else { output.to_owned() };
        assignments.push(Assignment { input, output });
    }
    refuse_collisions(&assignments)?;
    Ok((assignments, to_folder.then(|| output.to_owned())))
}

/// Refuses options and names that do not go with what the input is.
pub(super) fn check(assignment: &Assignment, arguments: &Arguments) -> Result<(), Failure> {
    let usage = |problem: &str| Err(Failure::Usage(problem.into()));
    let (frames, y4m) = (has_frames(&assignment.input, arguments.raw), arguments.raw.is_none());
    if !frames && is_standard_stream(&assignment.output) {
        return usage("pictures go to files; only frames (--raw, .y4m) go to standard output");
    }
    if frames && Format::of_name(&assignment.output).is_ok() {
        return usage(
            "frames become a stream; expected - or a name such as large.y4m for --output, found that of a picture",
        );
    }
    if frames && arguments.srgb {
        return usage("--srgb is for pictures with a colour profile, and frames have none");
    }
    if frames && y4m && arguments.bit_depth.is_some() {
        return usage("--bit-depth does not go with .y4m frames, which keep their colour space");
    }
    if arguments.matrix.is_some() && !(frames && y4m) {
        return usage("--matrix is for .y4m frames");
    }
    Ok(())
}

fn ends_with_separator(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().last().is_some_and(|&byte| std::path::is_separator(byte as char))
}

/// A name with the wildcards of a shell, and no file of that very name.
fn is_pattern(input: &Path) -> bool {
    input.to_str().is_some_and(|text| text.contains(['*', '?', '['])) && !input.exists()
}

/// The files that a pattern stands for, sorted by name.
fn matching(pattern: &Path) -> Result<Vec<PathBuf>, Failure> {
    let refused = |problem: &dyn std::fmt::Display| Failure::Usage(format!("{}: {problem}", pattern.display()));
    let paths = glob::glob(&pattern.to_string_lossy()).map_err(|error| refused(&error))?;
    let mut found = paths.collect::<Result<Vec<PathBuf>, _>>().map_err(|error| refused(&error))?;
    found.retain(|path| path.is_file());
    if found.is_empty() { Err(refused(&"expected files of this pattern, found none")) } else { Ok(found) }
}

/// The inputs, with patterns and folders replaced by the pictures that they stand for, sorted by name.
fn pictures(inputs: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut pictures = Vec::new();
    for input in inputs {
        if is_pattern(input) {
            pictures.append(&mut matching(input)?);
            continue;
        }
        if !input.is_dir() {
            pictures.push(input.clone());
            continue;
        }
        let failed = |source| Failure::file(input, "read the folder", source);
        let entries = fs::read_dir(input).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(failed)?;
        let mut found: Vec<_> = entries.iter().map(fs::DirEntry::path).collect();
        found.retain(|path| path.is_file() && Format::of_name(path).is_ok());
        if found.is_empty() {
            return Err(Failure::Usage(format!(
                "{}: expected pictures (.png, .jpg, .jpeg, .webp, .tif, .tiff) in this folder, found none",
                input.display()
            )));
        }
        found.sort();
        pictures.append(&mut found);
    }
    Ok(pictures)
}

/// The name of an enlarged picture in a folder: the input's name; with `.png` where it is a picture whose ending says
/// nothing that can be written.
pub(super) fn name_for(input: &Path, raw: Option<RawFrames>) -> PathBuf {
    let name = PathBuf::from(input.file_name().unwrap_or_default());
    if has_frames(input, raw) || Format::of_name(&name).is_ok() { name } else { name.with_extension("png") }
}

fn refuse_collisions(assignments: &[Assignment]) -> Result<(), Failure> {
    let mut taken: BTreeMap<&Path, &Path> = BTreeMap::new();
    for Assignment { input, output } in assignments {
        if let Some(other) = taken.insert(output, input) {
            return Err(Failure::Usage(format!(
                "{}: both {} and {} would be written here; rename one, or run them apart",
                output.display(),
                other.display(),
                input.display()
            )));
        }
    }
    check_outputs(assignments, &assignments.iter().map(|assignment| assignment.input.as_path()).collect::<Vec<_>>())
}

/// Refuses outputs that would destroy what is read. Streams are no files.
pub(super) fn check_outputs(assignments: &[Assignment], read: &[&Path]) -> Result<(), Failure> {
    let outputs = assignments.iter().map(|assignment| assignment.output.as_path());
    let outputs: Vec<&Path> = outputs.filter(|output| !is_standard_stream(output)).collect();
    Ok(outputs::check(&outputs, read)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assigned(inputs: &[&Path], output: &Path) -> Result<Vec<PathBuf>, Failure> {
        let inputs: Vec<_> = inputs.iter().map(|path| path.to_path_buf()).collect();
        Ok(assign(&inputs, output, |input| name_for(input, None))?.0.into_iter().map(|pair| pair.output).collect())
    }

    #[test]
    fn one_file_goes_to_a_file_or_into_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let (input, made) = (Path::new("photo.bmp"), folder.path().join("made/"));
        assert_eq!(assigned(&[input], Path::new("x.jpg")).unwrap(), [PathBuf::from("x.jpg")]);
        assert_eq!(assigned(&[input], folder.path()).unwrap(), [folder.path().join("photo.png")]);
        assert_eq!(assigned(&[input], &made).unwrap(), [made.join("photo.png")]);
        assert_eq!(assigned(&[Path::new("clip.y4m")], &made).unwrap(), [made.join("clip.y4m")]);
        assert!(!made.exists(), "a folder is made when all has been checked");
    }

    #[test]
    fn a_folder_gives_its_pictures_sorted() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.png", "a.jpg", "notes.txt", "c.WEBP"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let output = folder.path().join("out");
        let expected = ["a.jpg", "b.png", "c.WEBP"].map(|name| output.join(name));
        assert_eq!(assigned(&[folder.path()], &output).unwrap(), expected);
    }

    #[test]
    fn patterns_are_expanded_where_the_shell_did_not() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.png", "a.png", "c.jpg", "odd[1].png"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let output = folder.path().join("out");
        let expected = ["a.png", "b.png", "odd[1].png"].map(|name| output.join(name));
        assert_eq!(assigned(&[&folder.path().join("*.png")], &output).unwrap(), expected);
        assert_eq!(
            assigned(&[&folder.path().join("odd[1].png")], &output.join("")).unwrap(),
            [output.join("odd[1].png")]
        );
        let none = assigned(&[&folder.path().join("*.webp")], &output);
        assert!(matches!(none, Err(Failure::Usage(text)) if text.contains("found none")));
    }

    #[test]
    fn collisions_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let input = folder.path().join("a.png");
        fs::write(&input, "").unwrap();
        let twice = assigned(&[Path::new("x/a.png"), Path::new("y/a.png")], folder.path());
        assert!(matches!(twice, Err(Failure::Usage(text)) if text.contains("both x/a.png and y/a.png")));
        assert!(matches!(assigned(&[&input], &input), Err(Failure::Usage(_))));
        assert!(matches!(assigned(&[folder.path()], folder.path()), Err(Failure::Usage(_))));
    }
}
