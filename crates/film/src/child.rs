//! A running process of `ffmpeg` or `ffprobe`.

use std::collections::VecDeque;
use std::io::Read;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};

use crate::error::{Error, Result};
use crate::process;

/// Bytes of messages that are kept from the beginning, and the same number from the end.
const MESSAGES: usize = 4096;

/// A running program. Dropping this value kills the program if it has not ended.
pub(crate) struct Running {
    child: Child,
    messages: Option<JoinHandle<String>>,
}

/// How a program ended, and its messages.
pub(crate) struct Ended {
    status: ExitStatus,
    messages: String,
}

impl Running {
    /// Starts a program. A thread reads its messages, so that the program never blocks on them.
    pub(crate) fn start(mut command: Command, program: &'static str) -> Result<Self> {
        process::in_own_group(command.stderr(Stdio::piped()));
        let mut child = command.spawn().map_err(|source| Error::Start { program, source })?;
        let messages = child.stderr.take().map(|stderr| thread::spawn(move || kept(stderr)));
        Ok(Self { child, messages })
    }

    pub(crate) fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    pub(crate) fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Waits for the end.
    pub(crate) fn end(mut self) -> Result<Ended> {
        let status = self.child.wait().map_err(|source| Error::Start { program: "ffmpeg", source })?;
        let messages = self.messages.take().and_then(|messages| messages.join().ok()).unwrap_or_default();
        Ok(Ended { status, messages })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    pub(crate) fn succeeded(&self) -> bool {
        self.status.success()
    }

    /// Its messages, without the parts that differ from run to run.
    pub(crate) fn messages(&self) -> String {
        let lines = self.messages.lines().map(without_address).filter(|line| !line.trim().is_empty());
        lines.collect::<Vec<_>>().join("\n  ")
    }

    /// How it ended, for an error. `program` is its name.
    pub(crate) fn reason(&self, program: &str) -> String {
        let end = match (process::ended_by_system(self.status), self.status.code()) {
            (Some(how), _) => format!("{program} {how}"),
            (None, Some(0)) => format!("{program} reports"),
            (None, code) => format!("{program} ended with exit code {}", code.unwrap_or(-1)),
        };
        let messages = self.messages();
        if messages.is_empty() { end } else { format!("{end}:\n  {messages}") }
    }
}

/// The beginning and the end of a program's messages.
fn kept(mut stderr: impl Read) -> String {
    let (mut first, mut last, mut left_out) = (Vec::new(), VecDeque::<u8>::new(), 0_u64);
    let mut bytes = [0; 4096];
    while let Ok(read @ 1..) = stderr.read(&mut bytes) {
        let (head, tail) = bytes[..read].split_at(read.min(MESSAGES - first.len()));
        first.extend_from_slice(head);
        last.extend(tail);
        let more = last.len().saturating_sub(MESSAGES);
        last.drain(..more);
        left_out += more as u64;
    }
    if left_out > 0 {
        first.extend_from_slice(format!("\n… {left_out} bytes …\n").as_bytes());
    }
    first.extend(last);
    String::from_utf8_lossy(&first).into_owned()
}

/// A line without the address in `[h264 @ 0x55d1]`.
fn without_address(line: &str) -> String {
    let Some((before, rest)) = line.split_once(" @ 0x") else { return line.into() };
    match rest.split_once(']') {
        Some((_, after)) if line.starts_with('[') => format!("{before}]{after}"),
        _ => line.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_keep_both_ends() {
        let text = format!("first{}last", "x".repeat(100_000));
        let kept = kept(text.as_bytes());
        assert!(kept.starts_with("first") && kept.ends_with("last") && kept.len() < 9000, "{kept}");
        assert_eq!(super::kept(&b"short"[..]), "short");
    }

    #[test]
    fn addresses_are_left_out() {
        assert_eq!(without_address("[mov,mp4 @ 0x55a] moov atom not found"), "[mov,mp4] moov atom not found");
        assert_eq!(without_address("in.mp4: Invalid data"), "in.mp4: Invalid data");
    }

    #[test]
    fn a_program_that_talks_much_ends_and_one_that_is_left_is_killed() {
        let mut command = Command::new("sh");
        command.args(["-c", "yes | head -c 3000000 >&2; exit 3"]).stdin(Stdio::null());
        let ended = Running::start(command, "sh").unwrap().end().unwrap();
        assert!(ended.reason("sh").starts_with("sh ended with exit code 3:"), "{}", ended.reason("sh"));
        let mut command = Command::new("sleep");
        command.arg("1000").stdin(Stdio::null());
        drop(Running::start(command, "sleep").unwrap());
    }
}
