//! Results on standard output, messages on standard error.

use std::io::{self, Write};

use serde::Serialize;
use thiserror::Error;

/// A result cannot be printed.
#[derive(Debug, Error)]
#[error("standard output: cannot be written")]
pub struct PrintError(#[from] io::Error);

use crate::visible::{visible, visible_json};

/// Prints a result and a line break. Where nobody reads any more, the work goes on, and the exit code tells of it.
///
/// # Errors
/// Standard output cannot be written, for another reason than a closed pipe.
pub fn print(text: &str) -> Result<(), PrintError> {
    Ok(write_line(&mut io::stdout().lock(), &visible(text))?)
}

/// Prints a result for machines.
///
/// # Errors
/// As [`print()`], or the value has no JSON.
pub fn print_json(value: &impl Serialize) -> Result<(), PrintError> {
    let json = serde_json::to_string_pretty(value).map_err(io::Error::from)?;
    print(&visible_json(&json))
}

/// Says something to the user. Where standard error is closed, nobody misses it.
pub fn report(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", visible(text));
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
    fn a_reader_that_has_gone_is_no_error_and_a_full_disk_is() {
        assert!(write_line(&mut Fails(io::ErrorKind::BrokenPipe), "x").is_ok());
        assert!(write_line(&mut Fails(io::ErrorKind::StorageFull), "x").is_err());
        let mut written = Vec::new();
        write_line(&mut written, "x").unwrap();
        assert_eq!(written, b"x\n");
    }
}
