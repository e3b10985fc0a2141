//! Results on standard output, messages on standard error.

use std::io::{self, Write};

use serde::Serialize;
use thiserror::Error;
use tileforge_files::bounded_to;

/// A result cannot be printed.
#[derive(Debug, Error)]
#[error("standard output: cannot be written")]
pub struct PrintError(#[from] io::Error);

use crate::verbosity::is_quiet;
use crate::visible::{visible, visible_json};

/// Prints a result and a line break. If the reader of a pipe is gone, the result is dropped without an error: the work
/// goes on, and its exit code still tells the outcome.
///
/// # Errors
/// Standard output cannot be written, for another reason than a closed pipe.
pub fn print(text: &str) -> Result<(), PrintError> {
    Ok(write_line(&mut io::stdout().lock(), &visible(text))?)
}

/// Prints a result to standard error, for when standard output carries other data.
///
/// # Errors
/// As [`print()`].
pub fn print_beside(text: &str) -> Result<(), PrintError> {
    Ok(write_line(&mut io::stderr().lock(), &visible(text))?)
}

/// Prints a result as JSON, for other programs.
///
/// # Errors
/// As [`print()`]; or the value cannot be written as JSON.
pub fn print_json(value: &impl Serialize) -> Result<(), PrintError> {
    let json = serde_json::to_string_pretty(value).map_err(io::Error::from)?;
    print(&visible_json(&json))
}

/// Prints a remark to standard error, unless `--quiet` is set. A closed standard error is ignored.
pub fn report(text: &str) {
    if !is_quiet() {
        let _ = writeln!(io::stderr().lock(), "{}", visible(text));
    }
}

/// Prints an error to standard error, also with `--quiet`.
pub fn report_error(text: &str) {
    let text = readable(&format!("error: {text}"));
    let _ = writeln!(io::stderr().lock(), "{}", visible(&text));
}

/// Most bytes of a line of an error, and of a whole error. Longer texts come from damaged or hostile files.
const LONGEST_LINE: usize = 4000;
const LONGEST_ERROR: usize = 64 << 10;

/// An error with long lines shortened.
fn readable(error: &str) -> String {
    let lines: Vec<String> = error.lines().map(|line| bounded_to(line.to_owned(), LONGEST_LINE)).collect();
    bounded_to(lines.join("\n"), LONGEST_ERROR)
}

fn write_line(output: &mut impl Write, text: &str) -> io::Result<()> {
    match writeln!(output, "{text}").and_then(|()| output.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fails(io::ErrorKind);

    impl Write for Fails {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_error_is_as_long_as_a_user_can_read() {
        assert_eq!(readable("error: x\n  because: y"), "error: x\n  because: y");
        let long =
            readable(&format!("error: x.pth: found \"{}\"; download it again\n  because: y", "a".repeat(20_000_000)));
        assert!(long.len() < LONGEST_LINE + 20 && long.ends_with("; download it again\n  because: y"), "{long}");
        assert!(readable(&"line\n".repeat(1_000_000)).len() <= LONGEST_ERROR);
    }

    #[test]
    fn a_reader_that_has_gone_is_no_error_and_a_full_disk_is() {
        assert!(write_line(&mut Fails(io::ErrorKind::BrokenPipe), "x").is_ok());
        assert!(write_line(&mut Fails(io::ErrorKind::StorageFull), "x").is_err());
        let mut written = Vec::new();
        write_line(&mut written, "x").unwrap();
        assert_eq!(written, b"x\n");
    }
}
