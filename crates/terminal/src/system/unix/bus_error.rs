//! What happens when a file becomes shorter while it is mapped into memory.
//!
//! Checkpoints, engines and ONNX Runtime's library are mapped, not read. If another program truncates such a file,
//! reading behind its new end raises SIGBUS, which would end this program without a message. Nothing can be repaired
//! then: the program names the file, and ends with the exit code of a failure.
//!
//! Unsafe code: a signal handler may only do what is safe between any two instructions of the program
//! (signal-safety(7)). This handler makes system calls with memory of its own stack, allocates nothing and takes no
//! lock.
#![allow(unsafe_code)]

use libc::{BUS_ADRERR, SIGBUS, siginfo_t};
use rustix::fs::{Mode, OFlags};

use crate::exit::Exit;
use crate::output::report;

/// From now on, if a mapped file becomes shorter, the program names the file when it reads behind the new end, and
/// ends.
pub fn explain_bus_errors() {
    // SAFETY: `explain` only calls what is safe in a signal handler; see this module's text.
    if let Err(error) = unsafe { signal_hook_registry::register_sigaction(SIGBUS, explain) } {
        report(&format!("warning: files that are cut while they are in use will not be named: {error}"));
    }
}

fn explain(information: &siginfo_t) {
    // Other codes report defects of the memory or of a program, and are handled as before.
    if information.si_code != BUS_ADRERR {
        return;
    }
    // SAFETY: SIGBUS always comes with an address.
    let address = unsafe { information.si_addr() } as u64;
    let mut path = [0; PATH_MAXIMUM];
    let length = path_at(address, &mut path).unwrap_or(0);
    let name: &[u8] = if length == 0 { b"a file" } else { path.get(..length).unwrap_or_default() };
    for text in [
        b"error: ".as_slice(),
        name,
        b": another program made this file shorter while it was in use; restore it, and run this again\n",
    ] {
        // A failure cannot be reported.
        let _ = rustix::io::write(rustix::stdio::stderr(), text);
    }
    // SAFETY: it ends the process at once, and runs nothing of this program.
    unsafe { libc::_exit(i32::from(Exit::Failed.code())) }
}

/// Longest path that is shown, and size of the pieces in which the table of mappings is read, in bytes.
const PATH_MAXIMUM: usize = 1024;

/// Writes the path of the file that is mapped at an address to `path`, and returns its length. Does not use the heap.
fn path_at(address: u64, path: &mut [u8; PATH_MAXIMUM]) -> Option<usize> {
    let table = rustix::fs::open(c"/proc/self/maps", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut line = Line::default();
    let mut piece = [0; PATH_MAXIMUM];
    loop {
        let read = rustix::io::read(&table, &mut piece).ok().filter(|read| *read > 0)?;
        for &byte in piece.get(..read)? {
            if byte != b'\n' {
                line.add(byte, path);
            } else if (line.start..line.end).contains(&address) {
                return Some(line.length);
            } else {
                line = Line::default();
            }
        }
    }
}

/// A line of `/proc/self/maps`, read byte by byte: `START-END MODE OFFSET DEVICE INODE PATH`. See proc_pid_maps(5).
#[derive(Default)]
struct Line {
    start: u64,
    end: u64,
    /// Number of the current column.
    column: u32,
    /// Whether the byte before was a space.
    after_space: bool,
    in_end: bool,
    /// Length of the path so far.
    length: usize,
}

impl Line {
    fn add(&mut self, byte: u8, path: &mut [u8]) {
        const PATH: u32 = 5;
        if byte == b' ' && self.column < PATH {
            self.column += u32::from(!self.after_space);
            self.after_space = true;
            return;
        }
        if byte == b' ' && self.length == 0 {
            return;
        }
        self.after_space = false;
        match self.column {
            0 if byte == b'-' => self.in_end = true,
            0 => {
                let digit = u64::from(char::from(byte).to_digit(16).unwrap_or(0));
                let number = if self.in_end { &mut self.end } else { &mut self.start };
                *number = (*number << 4) | digit;
            }
            PATH => {
                if let Some(place) = path.get_mut(self.length) {
                    // Control characters could act on a terminal.
                    *place = if byte.is_ascii_control() { b'?' } else { byte };
                    self.length += 1;
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_at_an_address_is_found() {
        let mut path = [0; PATH_MAXIMUM];
        let code = the_file_at_an_address_is_found as fn() as usize as u64;
        let length = path_at(code, &mut path).unwrap();
        let executable = std::env::current_exe().unwrap();
        assert_eq!(std::str::from_utf8(&path[..length]).unwrap(), executable.to_str().unwrap());
        assert_eq!(path_at(1, &mut path), None);
    }

    #[test]
    fn a_line_is_read_byte_by_byte() {
        let mut path = [0; PATH_MAXIMUM];
        let mut line = Line::default();
        let text = b"7f00a000-7f00b000 r--p 00001000 fd:01 1234567                    /tmp/a \x1b[31mfile";
        text.iter().for_each(|&byte| line.add(byte, &mut path));
        assert_eq!((line.start, line.end), (0x7f00_a000, 0x7f00_b000));
        assert_eq!(&path[..line.length], b"/tmp/a ?[31mfile");
    }
}
