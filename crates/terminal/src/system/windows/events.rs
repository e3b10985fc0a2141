//! Events of the console: Ctrl-C, Ctrl-Break, a window that is closed, a user who logs off, a machine that shuts down.
//! Windows calls a handler for them in a thread of its own.
//!
//! Unsafe code: the handler is called by Windows with a number, and touches no memory of the thread that it came from.
//! Ending the process at once runs nothing of this program any more.
#![allow(unsafe_code)]

use std::io;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use windows_sys::Win32::System::Console::{CTRL_BREAK_EVENT, CTRL_C_EVENT, SetConsoleCtrlHandler};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, TerminateProcess};
use windows_sys::core::BOOL;

/// What every event calls.
static ARRIVED: OnceLock<fn()> = OnceLock::new();
/// Windows ends the process when a handler has returned for an event that cannot be refused, or after some seconds.
const LONGEST: Duration = Duration::from_secs(60);

/// Calls `arrived` for every event that asks the process to end. A Ctrl-C that this program was started to ignore is
/// still ignored.
pub(crate) fn listen(arrived: fn()) -> io::Result<()> {
    // The first caller's function stays: a program calls this once.
    let _ = ARRIVED.set(arrived);
    // SAFETY: see the module's text.
    match unsafe { SetConsoleCtrlHandler(Some(handle), 1) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

unsafe extern "system" fn handle(event: u32) -> BOOL {
    if let Some(arrived) = ARRIVED.get() {
        arrived();
    }
    if !matches!(event, CTRL_C_EVENT | CTRL_BREAK_EVENT) {
        // What was begun above ends the process before.
        thread::sleep(LONGEST);
    }
    1
}

/// A Ctrl-C that also reaches the process that started this one is for the other one.
pub(crate) fn leave_to_parent() {
    // SAFETY: without a handler, the call only has Ctrl-C ignored. Where it fails, this process ends a little earlier.
    let _ = unsafe { SetConsoleCtrlHandler(None, 1) };
}

/// Ends the process without the destructors of libraries, whose threads still work.
pub(crate) fn end_process(code: u8) -> ! {
    // SAFETY: see the module's text. The handle of this process is always valid.
    unsafe { TerminateProcess(GetCurrentProcess(), u32::from(code)) };
    std::process::abort()
}
