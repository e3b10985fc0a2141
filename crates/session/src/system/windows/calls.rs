//! Calls of Windows that the standard library does not have.
//!
//! Unsafe code: the signatures are those of Microsoft's headers, through `windows-sys`. Structures state their own
//! size, and buffers live as long as the call.
#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::io;
use std::mem::size_of;
use std::os::windows::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use windows_sys::Win32::Foundation::{ERROR_SUCCESS, FreeLibrary};
use windows_sys::Win32::System::LibraryLoader::{
    AddDllDirectory, LOAD_LIBRARY_SEARCH_DEFAULT_DIRS, LoadLibraryExW, SetDefaultDllDirectories,
};
use windows_sys::Win32::System::ProcessStatus::{GetProcessMemoryInfo, PROCESS_MEMORY_COUNTERS};
use windows_sys::Win32::System::Registry::{HKEY_LOCAL_MACHINE, RRF_RT_REG_SZ, RegGetValueW};
use windows_sys::Win32::System::SystemInformation::{GlobalMemoryStatusEx, MEMORYSTATUSEX};
use windows_sys::Win32::System::Threading::GetCurrentProcess;

fn wide(text: &OsStr) -> Vec<u16> {
    text.encode_wide().chain([0]).collect()
}

fn succeeded(result: i32) -> io::Result<()> {
    if result == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Bytes of free physical memory, or bytes that Windows still grants, whichever is less.
pub(super) fn memory() -> io::Result<u64> {
    let mut found = MEMORYSTATUSEX { dwLength: size_of::<MEMORYSTATUSEX>() as u32, ..Default::default() };
    // SAFETY: see the module's text.
    succeeded(unsafe { GlobalMemoryStatusEx(&raw mut found) })?;
    Ok(found.ullAvailPhys.min(found.ullAvailPageFile))
}

/// The most memory that this process has had at once, in bytes.
pub(super) fn peak_memory() -> io::Result<u64> {
    let mut found = PROCESS_MEMORY_COUNTERS::default();
    let size = size_of::<PROCESS_MEMORY_COUNTERS>() as u32;
    // SAFETY: see the module's text; the handle of this process is always valid.
    succeeded(unsafe { GetProcessMemoryInfo(GetCurrentProcess(), &raw mut found, size) })?;
    Ok(found.PeakWorkingSetSize as u64)
}

/// From now on, the loader searches for libraries beside the program, among the system's libraries, and in this
/// folder; not in the current folder or in the folders of `PATH`.
pub(super) fn search_libraries_in(folder: &Path) -> io::Result<()> {
    let path = wide(folder.as_os_str());
    // SAFETY: see the module's text.
    unsafe {
        succeeded(SetDefaultDllDirectories(LOAD_LIBRARY_SEARCH_DEFAULT_DIRS))?;
        if AddDllDirectory(path.as_ptr()).is_null() { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Whether the loader finds a library of this name in the places of [`search_libraries_in`].
pub(super) fn is_library_found(name: &str) -> bool {
    let name = wide(name.as_ref());
    // SAFETY: see the module's text; a library that was opened is closed once.
    unsafe {
        let library = LoadLibraryExW(name.as_ptr(), ptr::null_mut(), LOAD_LIBRARY_SEARCH_DEFAULT_DIRS);
        !library.is_null() && {
            FreeLibrary(library);
            true
        }
    }
}

/// The model of the first processor.
pub(super) fn processor() -> Option<String> {
    let key = wide(r"HARDWARE\DESCRIPTION\System\CentralProcessor\0".as_ref());
    let name = wide("ProcessorNameString".as_ref());
    let mut text = [0_u16; 256];
    let mut size = (text.len() * 2) as u32;
    // SAFETY: see the module's text; `size` is that of the buffer, in bytes.
    let result = unsafe {
        RegGetValueW(
            HKEY_LOCAL_MACHINE,
            key.as_ptr(),
            name.as_ptr(),
            RRF_RT_REG_SZ,
            ptr::null_mut(),
            text.as_mut_ptr().cast(),
            &raw mut size,
        )
    };
    let text = String::from_utf16_lossy(&text[..(size as usize / 2).min(text.len())]);
    let text = text.trim_end_matches('\0').trim().to_owned();
    (result == ERROR_SUCCESS && !text.is_empty()).then_some(text)
}
