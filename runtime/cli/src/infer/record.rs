//! The record of a folder's outputs and their inputs, for `--resume`.
//!
//! One file in the folder has a line of JSON for each output; the last line about an output counts. Several programs
//! may add lines at the same time. The file is not trusted: it is read with limits, no path in it is ever opened, and
//! a line that differs from the current run only causes the output to be made again.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs::{self, Metadata};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tileforge_engine::digest::sha256_file;
use tileforge_files::with_slashes;
use tileforge_terminal::report;

/// The file's name.
const NAME: &str = ".tileforge-outputs.jsonl";

/// No line is longer: a path has 4,096 bytes.
const LINE_MAXIMUM: u64 = 64 << 10;

/// The most lines that are read, including lines about other outputs.
const LINES_MAXIMUM: usize = 5_000_000;

/// What outputs are made with: the digest of the engine, and options by their names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct With {
    pub(super) engine: String,
    pub(super) options: BTreeMap<String, String>,
}

/// The recorded state of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    bytes: u64,
    /// Seconds and nanoseconds since 1970.
    modified: (i64, i64),
    sha256: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Line {
    /// The output's path relative to the folder.
    output: String,
    made: State,
    inputs: Vec<State>,
    with: With,
}

/// Size and time of change.
type Stamp = (u64, (i64, i64));

fn stamp_of(metadata: &Metadata) -> Stamp {
    (metadata.len(), metadata.modified().map_or((0, 0), since_1970))
}

/// Seconds and nanoseconds; the nanoseconds count forward before 1970, too.
fn since_1970(time: SystemTime) -> (i64, i64) {
    let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => (seconds(after), i64::from(after.subsec_nanos())),
        Err(before) => match before.duration() {
            whole if whole.subsec_nanos() == 0 => (-seconds(whole), 0),
            part => (-seconds(part) - 1, 1_000_000_000 - i64::from(part.subsec_nanos())),
        },
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    fs::metadata(path).ok().filter(Metadata::is_file).map(|metadata| stamp_of(&metadata))
}

impl State {
    fn of(path: &Path) -> Option<Self> {
        let (bytes, modified) = stamp(path)?;
        let sha256 = sha256_file(path).ok()?.sha256;
        // It must not have changed while it was read.
        (stamp(path)? == (bytes, modified)).then_some(Self { bytes, modified, sha256 })
    }

    /// Whether the file is unchanged: by size and time, else by its content.
    fn is(&self, path: &Path) -> bool {
        stamp(path).is_some_and(|(bytes, modified)| {
            bytes == self.bytes
                && (modified == self.modified || sha256_file(path).is_ok_and(|found| found.sha256 == self.sha256))
        })
    }
}

/// Whether an output is there already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Made {
    /// It is what would be made.
    Finished,
    /// It exists but does not match, for this reason.
    Otherwise(String),
    /// It is not there.
    Missing,
}

/// The record of one folder.
pub(super) struct Record {
    folder: PathBuf,
    with: With,
    lines: HashMap<String, Line>,
    /// The inputs' size and time when they were about to be read.
    begun: HashMap<PathBuf, Stamp>,
    /// The user has been warned that nothing can be recorded.
    failed: bool,
}

impl Record {
    /// The record of a folder, with what it says about these outputs.
    pub(super) fn of(folder: &Path, with: With, outputs: &[&Path]) -> Self {
        let mut record =
            Self { folder: folder.to_owned(), with, lines: HashMap::new(), begun: HashMap::new(), failed: false };
        let wanted: HashMap<String, ()> = outputs.iter().map(|output| (record.name_of(output), ())).collect();
        if let Ok(file) = tileforge_files::open(&folder.join(NAME)) {
            record.lines = lines_about(BufReader::new(file), |output| wanted.contains_key(output));
        }
        record
    }

    /// Notes the size and time of inputs before they are read.
    pub(super) fn begin(&mut self, inputs: &[&Path]) {
        for input in inputs {
            if let Some(stamp) = stamp(input) {
                self.begun.insert(input.to_path_buf(), stamp);
            }
        }
    }

    /// Whether this output was made of these inputs.
    pub(super) fn made(&self, output: &Path, inputs: &[&Path]) -> Made {
        match fs::symlink_metadata(output) {
            Err(_) => return Made::Missing,
            Ok(found) if !output.is_file() => {
                let what = if found.is_symlink() { "a link to nothing" } else { "no regular file" };
                return Made::Otherwise(format!("it is {what}"));
            }
            Ok(_) => {}
        }
        let otherwise = |why: &str| Made::Otherwise(why.into());
        let Some(line) = self.lines.get(&self.name_of(output)) else {
            return otherwise("nothing says what it was made of");
        };
        if line.with.engine != self.with.engine {
            return otherwise("it was made by another engine");
        }
        if line.with.options != self.with.options {
            return Made::Otherwise(format!("it was made with other options: {}", self.differing(&line.with.options)));
        }
        if line.inputs.len() != inputs.len() || !line.inputs.iter().zip(inputs).all(|(was, input)| was.is(input)) {
            return otherwise("it was made of another input");
        }
        if line.made.is(output) { Made::Finished } else { otherwise("it has changed since it was made") }
    }

    /// The names of options that have changed.
    fn differing(&self, other: &BTreeMap<String, String>) -> String {
        let mine = &self.with.options;
        let mut names: Vec<&str> = mine.keys().chain(other.keys()).map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        names.retain(|name| mine.get(*name) != other.get(*name));
        let known: Vec<&str> = names.iter().copied().filter(|name| mine.contains_key(*name)).collect();
        if known.len() == names.len() { known.join(", ") } else { "those of another version".into() }
    }

    /// Records an output and its inputs. An output that cannot be recorded is made again by the next `--resume`.
    pub(super) fn add(&mut self, output: &Path, inputs: &[&Path]) {
        // If an input has changed meanwhile, it is unknown which version made this output.
        if inputs.iter().any(|input| stamp(input).is_none() || stamp(input) != self.begun.get(*input).copied()) {
            return;
        }
        let states: Option<Vec<State>> = inputs.iter().map(|input| State::of(input)).collect();
        let (Some(made), Some(inputs)) = (State::of(output), states) else { return };
        let line = Line { output: self.name_of(output), made, inputs, with: self.with.clone() };
        let written = serde_json::to_string(&line).map_err(io::Error::from).and_then(|line| self.append(&line));
        if let Err(error) = written
            && !std::mem::replace(&mut self.failed, true)
        {
            let path = self.folder.join(NAME);
            report(&format!("warning: {}: cannot be written ({error}); --resume will begin anew", path.display()));
        }
    }

    fn append(&self, line: &str) -> io::Result<()> {
        let mut file = tileforge_files::open_to_append(&self.folder.join(NAME))?;
        // Without locks in the file system, lines are still short enough for one write.
        let _ = file.lock();
        let mut text = String::with_capacity(line.len() + 2);
        // A killed program may have left half a line.
        if file.metadata()?.len() > 0 {
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                text.push('\n');
            }
        }
        text.push_str(line);
        text.push('\n');
        file.write_all(text.as_bytes())
    }

    /// The output's path relative to the folder. `%` and bytes that are not UTF-8 become `%` and two hexadecimal
    /// digits.
    fn name_of(&self, output: &Path) -> String {
        let path = output.strip_prefix(&self.folder).unwrap_or(output);
        let mut name = String::new();
        for chunk in path.as_os_str().as_encoded_bytes().utf8_chunks() {
            name.push_str(&with_slashes(chunk.valid()).replace('%', "%25"));
            for byte in chunk.invalid() {
                // Writing to a string cannot fail.
                let _ = write!(name, "%{byte:02x}");
            }
        }
        name
    }
}

/// The last line about each wanted output. Damaged and too long lines are ignored.
fn lines_about(mut file: impl BufRead, wanted: impl Fn(&str) -> bool) -> HashMap<String, Line> {
    let (mut lines, mut bytes) = (HashMap::new(), Vec::new());
    for _ in 0..LINES_MAXIMUM {
        bytes.clear();
        match file.by_ref().take(LINE_MAXIMUM).read_until(b'\n', &mut bytes) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        let is_whole = bytes.last() == Some(&b'\n');
        if let Some(line) = serde_json::from_slice::<Line>(&bytes).ok().filter(|line| is_whole && wanted(&line.output))
        {
            lines.insert(line.output.clone(), line);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;
    use std::thread;

    use super::*;

    fn with(engine: &str, blend: &str) -> With {
        With { engine: engine.into(), options: BTreeMap::from([("blend".into(), blend.into())]) }
    }

    struct Work {
        folder: tempfile::TempDir,
        input: PathBuf,
        output: PathBuf,
    }

    impl Work {
        /// An output that was made and recorded.
        fn made(name: &std::ffi::OsStr) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let (input, output) = (folder.path().join("input"), folder.path().join(name));
            fs::write(&input, "the input").unwrap();
            let work = Self { folder, input, output };
            let mut record = work.record(with("one", "hann"));
            assert_eq!(record.made(&work.output, &[&work.input]), Made::Missing);
            record.begin(&[&work.input]);
            fs::write(&work.output, "the output").unwrap();
            record.add(&work.output, &[&work.input]);
            work
        }

        fn record(&self, with: With) -> Record {
            Record::of(self.folder.path(), with, &[&self.output])
        }

        fn found(&self) -> Made {
            self.record(with("one", "hann")).made(&self.output, &[&self.input])
        }

        fn reason(&self) -> String {
            match self.found() {
                Made::Otherwise(reason) => reason,
                other => panic!("expected a reason, found {other:?}"),
            }
        }
    }

    #[test]
    fn only_what_is_the_same_in_every_respect_is_finished() {
        let work = Work::made("out.png".as_ref());
        assert_eq!(work.found(), Made::Finished);
        let reason = |with: With| work.record(with).made(&work.output, &[&work.input]);
        assert_eq!(reason(with("two", "hann")), Made::Otherwise("it was made by another engine".into()));
        assert_eq!(reason(with("one", "none")), Made::Otherwise("it was made with other options: blend".into()));
        // Changed times and the same content: a copy of the folder.
        fs::write(&work.output, "the output").unwrap();
        fs::write(&work.input, "the input").unwrap();
        assert_eq!(work.found(), Made::Finished);
        fs::write(&work.output, "the outpux").unwrap();
        assert_eq!(work.reason(), "it has changed since it was made");
        fs::write(&work.output, "the out").unwrap();
        assert_eq!(work.reason(), "it has changed since it was made");
        fs::write(&work.output, "").unwrap();
        assert_eq!(work.reason(), "it has changed since it was made");
        fs::write(&work.output, "the output").unwrap();
        fs::write(&work.input, "another 1").unwrap();
        assert_eq!(work.reason(), "it was made of another input");
        fs::remove_file(&work.output).unwrap();
        assert_eq!(work.found(), Made::Missing);
        fs::create_dir(&work.output).unwrap();
        assert_eq!(work.reason(), "it is no regular file");
        fs::remove_dir(&work.output).unwrap();
        symlink(work.folder.path().join("gone"), &work.output).unwrap();
        assert_eq!(work.reason(), "it is a link to nothing");
    }

    #[test]
    fn names_of_any_bytes_are_kept_apart() {
        for name in [&b"\xff.png"[..], b"\xfe.png", b"%ff.png", "e\u{301}.png".as_bytes(), "é.png".as_bytes(), b"a\nb"]
        {
            let work = Work::made(std::ffi::OsStr::from_bytes(name));
            assert_eq!(work.found(), Made::Finished, "{name:?}");
            let lines = fs::read_to_string(work.folder.path().join(NAME)).unwrap();
            assert_eq!(lines.lines().count(), 1);
        }
        let record = Record::of(Path::new("/x"), with("", ""), &[]);
        let name = |bytes: &[u8]| record.name_of(&Path::new("/x").join(std::ffi::OsStr::from_bytes(bytes)));
        assert_eq!([name(b"\xff"), name(b"%ff"), name(b"sub/a")], ["%ff", "%25ff", "sub/a"]);
    }

    #[test]
    fn whatever_others_write_there_is_read_with_limits() {
        let work = Work::made("out.png".as_ref());
        let path = work.folder.path().join(NAME);
        let good = fs::read_to_string(&path).unwrap();
        let long = "x".repeat(3 << 20);
        let deep = "[".repeat(40_000);
        for noise in ["", "\0\0", "{}\n", "null\n", "{\"output\":7}\n", &deep, &long, "\u{feff}{"] {
            fs::write(&path, noise).unwrap();
            assert_eq!(work.reason(), "nothing says what it was made of", "{:.9}", noise);
            // The next line stands alone, whatever was there.
            fs::write(&path, noise).unwrap();
            let mut record = work.record(with("one", "hann"));
            record.begin(&[&work.input]);
            record.add(&work.output, &[&work.input]);
            assert_eq!(work.found(), Made::Finished, "{:.9}", noise);
        }
        // A half of a line, as a killed program leaves it.
        fs::write(&path, &good[..good.len() / 2]).unwrap();
        assert_eq!(work.reason(), "nothing says what it was made of");
        // Numbers that no file has.
        fs::write(&path, good.replace("\"bytes\":10", "\"bytes\":18446744073709551615")).unwrap();
        assert_eq!(work.reason(), "it has changed since it was made");
        // Not a regular file: nothing is read, waited for or written.
        fs::remove_file(&path).unwrap();
        let target = work.folder.path().join("target");
        symlink(&target, &path).unwrap();
        let mut record = work.record(with("one", "hann"));
        record.begin(&[&work.input]);
        record.add(&work.output, &[&work.input]);
        assert!(!target.exists(), "a link was followed");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(work.reason(), "nothing says what it was made of");
    }

    #[test]
    fn an_input_that_changes_on_the_way_is_not_recorded() {
        let work = Work::made("out.png".as_ref());
        let mut record = work.record(with("one", "cosine"));
        record.begin(&[&work.input]);
        fs::write(&work.input, "another input").unwrap();
        record.add(&work.output, &[&work.input]);
        let found = work.record(with("one", "cosine")).made(&work.output, &[&work.input]);
        assert!(matches!(found, Made::Otherwise(reason) if reason.contains("other options")));
    }

    #[test]
    fn many_programs_share_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let outputs: Vec<PathBuf> = (0..64).map(|number| folder.path().join(format!("{number}.png"))).collect();
        let input = folder.path().join("input");
        fs::write(&input, "x").unwrap();
        let all: Vec<&Path> = outputs.iter().map(PathBuf::as_path).collect();
        thread::scope(|scope| {
            for part in outputs.chunks(16) {
                let (folder, input) = (folder.path(), &input);
                scope.spawn(move || {
                    for output in part {
                        let mut record = Record::of(folder, with("one", "hann"), &[]);
                        record.begin(&[input]);
                        fs::write(output, "made").unwrap();
                        record.add(output, &[input]);
                    }
                });
            }
        });
        let record = Record::of(folder.path(), with("one", "hann"), &all);
        assert!(outputs.iter().all(|output| record.made(output, &[&input]) == Made::Finished));
    }
}
