//! Which picture goes where.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tileforge_files::outputs;
use tileforge_film::{Container, WRITTEN};
use tileforge_image::Format;
use tileforge_image::frames::RawFrames;

use super::super::endings;
use super::super::failure::Failure;
use super::arguments::{Arguments, Ending};
use super::inputs::{self, Found, is_pattern};
use super::kind::{has_frames, is_film, is_standard_stream};
use super::names::{Naming, is_template};
use super::shard::Shard;

/// One picture to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Assignment {
    pub(super) input: PathBuf,
    pub(super) output: PathBuf,
}

impl Assignment {
    /// Its JSON object: the files, and the members of `more`.
    pub(super) fn to_json(&self, more: Value) -> Value {
        let Self { input, output } = self;
        let mut members = json!({ "input": input, "output": output });
        if let (Value::Object(members), Value::Object(more)) = (&mut members, more) {
            members.extend(more);
        }
        members
    }
}

/// Which picture goes where, and what is left out.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) assignments: Vec<Assignment>,
    /// The folder for the outputs, if they go to one.
    pub(super) folder: Option<PathBuf>,
    /// Messages about what was left out of folders.
    pub(super) left_out: Vec<String>,
}

/// Where outputs go.
enum Target {
    /// The only one.
    File(PathBuf),
    Folder(PathBuf),
    Template(PathBuf),
    /// Each beside its input.
    Beside,
}

/// Pairs each input with its output.
///
/// One file goes to a file, unless the output is a folder or ends with a separator; several files, or a folder, go to a
/// folder, or to the names of a template. Without an output, a file goes beside its input, and a folder beside the
/// folder. Two inputs for one output, and an output that is an input, are refused before any work, whichever shard they
/// are in.
pub(super) fn assign(
    inputs: &[PathBuf],
    output: Option<&Path>,
    recursive: bool,
    shard: Option<Shard>,
    naming: &Naming<'_>,
) -> Result<Plan, Failure> {
    let single = matches!(inputs, [input] if !input.is_dir() && !is_pattern(input));
    let target = match output {
        None => match inputs {
            [input] if is_standard_stream(input) => Target::File(input.clone()),
            [input] if input.is_dir() => Target::Folder(naming.folder_beside(input)),
            _ => Target::Beside,
        },
        Some(output) if is_template(output) => Target::Template(output.to_owned()),
        Some(output) if single && !output.is_dir() && !ends_with_separator(output) => Target::File(output.to_owned()),
        Some(output) => Target::Folder(output.to_owned()),
    };
    let is_file = matches!(target, Target::File(_));
    if shard.is_some() && single {
        return Err(Failure::Usage("--shard divides folders and several pictures, found one input".into()));
    }
    if !is_file && inputs.iter().any(|input| is_standard_stream(input)) {
        return Err(Failure::Usage("standard input (-) goes alone, and to a file or standard output".into()));
    }
    if !is_file && output.is_some_and(is_standard_stream) {
        return Err(Failure::Usage(
            "expected one stream of frames or one picture for standard output (-), found several inputs".into(),
        ));
    }
    if let Target::Folder(folder) = &target {
        endings::check_folder(folder)?;
    }
    let avoided = match &target {
        Target::Folder(folder) => folder.canonicalize().ok(),
        _ => None,
    };
    let mut plan = Plan::default();
    let found = inputs::found(inputs, recursive, avoided.as_deref(), &mut plan.left_out)?;
    for Found { input, within, .. } in &found {
        let output = match &target {
            Target::File(output) => output.clone(),
            Target::Folder(folder) => folder.join(within).join(naming.same(input)),
            Target::Template(template) => naming.by_template(template, input, within)?,
            Target::Beside => naming.beside(input),
        };
        plan.assignments.push(Assignment { input: input.clone(), output });
    }
    leave_out_results(&mut plan, &found);
    refuse_collisions(&plan.assignments)?;
    if let Some(shard) = shard {
        leave_out_other_shards(&mut plan, &found, shard);
    }
    plan.folder = match target {
        Target::Folder(folder) => Some(folder),
        // One folder holds all of them if its name has no place to fill.
        Target::Template(template) if !single => {
            template.parent().map(Path::to_owned).filter(|parent| !is_template(parent))
        }
        _ => None,
    };
    Ok(plan)
}

/// Leaves out listed pictures that are outputs of other inputs: an earlier run has written them.
fn leave_out_results(plan: &mut Plan, found: &[Found]) {
    let outputs: BTreeMap<&Path, &Path> =
        plan.assignments.iter().map(|pair| (pair.output.as_path(), pair.input.as_path())).collect();
    let is_result = |pair: &Assignment| outputs.get(pair.input.as_path()).is_some_and(|source| *source != pair.input);
    let kept: Vec<bool> =
        plan.assignments.iter().zip(found).map(|(pair, found)| !(found.is_listed && is_result(pair))).collect();
    let results = kept.iter().filter(|kept| !**kept).count();
    let mut kept = kept.into_iter();
    plan.assignments.retain(|_| kept.next().unwrap_or(true));
    if results > 0 {
        plan.left_out.push(format!("{results} that are results of others"));
    }
}

/// Leaves out the pictures that other machines make.
fn leave_out_other_shards(plan: &mut Plan, found: &[Found], shard: Shard) {
    let relative = |found: &Found| match (found.is_listed, found.input.file_name()) {
        (true, Some(name)) => found.within.join(name),
        _ => found.input.clone(),
    };
    let here: BTreeSet<&Path> =
        found.iter().filter(|found| shard.has(&relative(found))).map(|found| found.input.as_path()).collect();
    let all = plan.assignments.len();
    plan.assignments.retain(|pair| here.contains(pair.input.as_path()));
    if plan.assignments.len() < all {
        plan.left_out.push(format!("{} of other shards", all - plan.assignments.len()));
    }
}

/// Refuses options and names that do not fit the kind of input.
pub(super) fn check(assignment: &Assignment, arguments: &Arguments) -> Result<(), Failure> {
    let usage = |problem: &str| Err(Failure::Usage(problem.into()));
    let (frames, y4m) = (has_frames(&assignment.input, arguments.raw), arguments.raw.is_none());
    let film = is_film(&assignment.input, arguments.raw);
    let Assignment { output, .. } = assignment;
    if !is_standard_stream(output) && output.is_dir() {
        return Err(Failure::Usage(format!("{}: expected the name of a file, found a folder", output.display())));
    }
    if is_standard_stream(output) && io::stdout().is_terminal() {
        return usage("standard output is a terminal: send it to a program or a file, or name one with --output");
    }
    if !frames && !is_standard_stream(output) {
        let format = Format::of_name(output).map_err(|error| Failure::Usage(error.to_string()))?;
        if let Some(wanted) = arguments.format.filter(|wanted| wanted.format != format) {
            return Err(Failure::Usage(format!(
                "{}: this name means {}, and --format asks for {}",
                output.display(),
                format.name(),
                wanted.format.name()
            )));
        }
    }
    if film {
        check_film(output, arguments)?;
    } else if let Some(option) = arguments.film.given() {
        return Err(Failure::Usage(format!("{option} is for films, such as .mkv and .mp4")));
    }
    if frames && !film && Format::of_name(output).is_ok() {
        return usage(
            "frames become a stream; expected - or a name such as large.y4m for --output, found that of a picture",
        );
    }
    if frames && !film {
        endings::check_frames(output, y4m.then_some("y4m"))?;
    }
    if frames && arguments.format.is_some() {
        return usage("--format is for pictures, and frames keep theirs");
    }
    if frames && arguments.srgb {
        return usage("--srgb is for pictures with a colour profile, and frames have none");
    }
    if frames && y4m && !film && arguments.bit_depth.is_some() {
        return usage("--bit-depth does not go with .y4m frames, which keep their colour space");
    }
    if arguments.matrix.is_some() && !(frames && y4m) {
        return usage("--matrix is for .y4m frames and films");
    }
    Ok(())
}

/// Refuses options that no output takes notice of.
pub(super) fn check_effects(assignments: &[Assignment], arguments: &Arguments) -> Result<(), Failure> {
    for (option, is_given, format) in [
        ("--quality", arguments.quality.is_some(), Format::Jpeg),
        ("--png-compression", arguments.png_compression.is_some(), Format::Png),
    ] {
        let none = !assignments.iter().any(|assignment| may_be(format, assignment, arguments));
        if is_given && none && !assignments.is_empty() {
            return Err(Failure::Usage(format!("{option} is for outputs in {}, and there is none", format.name())));
        }
    }
    Ok(())
}

/// Whether an output is a picture in this format, as far as names tell it.
fn may_be(format: Format, Assignment { input, output }: &Assignment, arguments: &Arguments) -> bool {
    match arguments.format {
        _ if !is_standard_stream(output) => Format::of_name(output).is_ok_and(|written| written == format),
        Some(ending) => ending.format == format,
        None => Format::of_name(input).map_or(true, |read| read == format),
    }
}

/// Refuses options and names that do not fit a film.
fn check_film(output: &Path, arguments: &Arguments) -> Result<(), Failure> {
    if Container::of_name(output).is_none() {
        return Err(Failure::Usage(format!(
            "{}: a film becomes a film; expected a name that ends in {WRITTEN}",
            output.display()
        )));
    }
    if arguments.bit_depth.is_some() {
        return Err(Failure::Usage("--bit-depth is for pictures; films have --pixel-format".into()));
    }
    match arguments.film.problem() {
        Some(problem) => Err(Failure::Usage(problem)),
        None => Ok(()),
    }
}

fn ends_with_separator(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().last().is_some_and(|&byte| std::path::is_separator(byte as char))
}

/// The ending of an enlarged picture or film: the requested one, else the input's, else `png` if the input's format
/// cannot be written.
pub(super) fn ending_for(input: &Path, raw: Option<RawFrames>, format: Option<Ending>) -> OsString {
    if is_film(input, raw) && Container::of_name(input).is_none() {
        // Formats that can only be read, such as .avi.
        return "mkv".into();
    }
    if has_frames(input, raw) {
        return input.extension().unwrap_or(OsStr::new("y4m")).to_owned();
    }
    match (format, input.extension()) {
        (Some(wanted), _) => wanted.name.into(),
        (None, Some(own)) if Format::of_name(input).is_ok() => own.to_owned(),
        _ => "png".into(),
    }
}

fn refuse_collisions(assignments: &[Assignment]) -> Result<(), Failure> {
    let mut taken: BTreeMap<&Path, &Path> = BTreeMap::new();
    for Assignment { input, output } in assignments {
        if let Some(other) = taken.insert(output, input) {
            return Err(Failure::Usage(format!(
                "{}: both {} and {} would be written here; rename one, run them apart, or name outputs with {{stem}}",
                output.display(),
                other.display(),
                input.display()
            )));
        }
    }
    check_outputs(assignments, &assignments.iter().map(|assignment| assignment.input.as_path()).collect::<Vec<_>>())
}

/// Refuses outputs that would overwrite inputs. Standard streams are not files.
pub(super) fn check_outputs(assignments: &[Assignment], read: &[&Path]) -> Result<(), Failure> {
    let outputs = assignments.iter().map(|assignment| assignment.output.as_path());
    let outputs: Vec<&Path> = outputs.filter(|output| !is_standard_stream(output)).collect();
    Ok(outputs::check(&outputs, read)?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn planned(inputs: &[&Path], output: Option<&Path>, recursive: bool) -> Result<Plan, Failure> {
        let inputs: Vec<_> = inputs.iter().map(|path| path.to_path_buf()).collect();
        let ending = |input: &Path| ending_for(input, None, None);
        let naming = Naming { engine: "e".into(), scale: Some("4".into()), suffix: "x4".into(), ending: &ending };
        assign(&inputs, output, recursive, None, &naming)
    }

    fn assigned(inputs: &[&Path], output: &Path) -> Result<Vec<PathBuf>, Failure> {
        Ok(planned(inputs, Some(output), false)?.assignments.into_iter().map(|pair| pair.output).collect())
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
    fn without_an_output_results_stand_beside_their_inputs() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("photos")).unwrap();
        fs::write(at("photos/a.bmp"), "").unwrap();
        let outputs = |inputs: &[&Path]| -> Vec<PathBuf> {
            planned(inputs, None, false).unwrap().assignments.into_iter().map(|pair| pair.output).collect()
        };
        assert_eq!(outputs(&[Path::new("x/photo.jpg")]), [PathBuf::from("x/photo-x4.jpg")]);
        assert_eq!(outputs(&[Path::new("a.y4m")]), [PathBuf::from("a-x4.y4m")]);
        assert_eq!(outputs(&[Path::new("-")]), [PathBuf::from("-")]);
        assert_eq!(outputs(&[&at("photos")]), [at("photos-x4/a.png")]);
        assert_eq!(outputs(&[Path::new("a.jpg"), &at("photos")]), [PathBuf::from("a-x4.jpg"), at("photos/a-x4.png")]);
    }

    #[test]
    fn results_of_an_earlier_run_are_no_inputs() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["a.png", "a-x4.png", "b.png"] {
            fs::write(at(name), "").unwrap();
        }
        let plan = planned(&[folder.path()], Some(&at("{stem}-x{scale}.{extension}")), false).unwrap();
        let outputs: Vec<_> = plan.assignments.into_iter().map(|pair| pair.output).collect();
        assert_eq!(outputs, [at("a-x4.png"), at("b-x4.png")]);
        assert_eq!(plan.left_out, ["1 that are results of others"]);
        // A named file is never left out.
        assert!(assigned(&[&at("a.png"), &at("a-x4.png")], &at("{stem}-x4.png")).is_err());
    }

    #[test]
    fn a_tree_keeps_its_folders() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["in/sub/deep", "in/out/sub", "in/.hidden", "elsewhere"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        let files =
            ["in/a.png", "in/sub/a.jpg", "in/sub/deep/é.gif", "in/out/a.png", "in/.hidden/b.png", "elsewhere/c.png"];
        for name in files {
            fs::write(at(name), "").unwrap();
        }
        let link = |from: &str, to: &str| std::os::unix::fs::symlink(at(from), at(to)).unwrap();
        link("elsewhere", "in/sub/away");
        link("in", "in/sub/around");
        link("elsewhere/c.png", "in/sub/c.png");
        link("in/a.png", "in/sub/d.png");
        let plan = planned(&[&at("in")], Some(&at("in/out")), true).unwrap();
        let outputs: Vec<_> = plan.assignments.iter().map(|pair| pair.output.clone()).collect();
        let expected = ["a.png", "sub/a.jpg", "sub/d.png", "sub/deep/é.png"];
        assert_eq!(outputs, expected.map(|name| at("in/out").join(name)));
        assert_eq!(plan.left_out, ["1 link out of the folder"]);
        let template = planned(&[&at("in")], Some(&at("x/{stem}-x4.{extension}")), true).unwrap();
        assert!(template.assignments.iter().any(|pair| pair.output == at("x/sub/deep/é-x4.png")));
        assert_eq!(planned(&[&at("in")], Some(&at("flat")), false).unwrap().assignments.len(), 1);
    }

    #[test]
    fn a_folder_gives_its_pictures_sorted() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.png", "a.jpg", "notes.txt", "c.WEBP", "d.HEIC", "e.avif", "f.heic"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let output = folder.path().join("out");
        let plan = planned(&[folder.path()], Some(&output), false).unwrap();
        let outputs: Vec<_> = plan.assignments.into_iter().map(|pair| pair.output).collect();
        assert_eq!(outputs, ["a.jpg", "b.png", "c.WEBP"].map(|name| output.join(name)));
        assert_eq!(plan.left_out, ["1 .avif, which is not read", "2 .heic, which are not read"]);
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
        // Two formats that become one.
        let twice = assigned(&[Path::new("x/a.png"), Path::new("x/a.bmp")], folder.path());
        assert!(matches!(twice, Err(Failure::Usage(text)) if text.contains("both x/a.png and x/a.bmp")));
        assert!(matches!(assigned(&[&input], &input), Err(Failure::Usage(_))));
        assert!(matches!(assigned(&[folder.path()], folder.path()), Err(Failure::Usage(_))));
    }
}
