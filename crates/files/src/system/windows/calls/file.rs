//! Files by their handles.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::mem::{self, offset_of, size_of};
use std::os::windows::ffi::{OsStrExt, OsStringExt};
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::path::{Component, Path, PathBuf};
use std::ptr;

use windows_sys::Wdk::Foundation::OBJECT_ATTRIBUTES;
use windows_sys::Wdk::Storage::FileSystem::{
    FILE_OPEN_FOR_BACKUP_INTENT, FILE_SYNCHRONOUS_IO_NONALERT, NTCREATEFILE_CREATE_DISPOSITION,
    NTCREATEFILE_CREATE_OPTIONS, NtCreateFile,
};
use windows_sys::Win32::Foundation::{
    ERROR_ALREADY_EXISTS, HANDLE, INVALID_HANDLE_VALUE, OBJ_CASE_INSENSITIVE, RtlNtStatusToDosError, UNICODE_STRING,
};
use windows_sys::Win32::Storage::FileSystem::{
    BY_HANDLE_FILE_INFORMATION, FILE_ACCESS_RIGHTS, FILE_ATTRIBUTE_NORMAL, FILE_BASIC_INFO, FILE_DISPOSITION_INFO,
    FILE_INFO_BY_HANDLE_CLASS, FILE_REMOTE_PROTOCOL_INFO, FILE_RENAME_INFO, FILE_SHARE_MODE, FILE_TYPE_CHAR,
    FILE_TYPE_DISK, FILE_TYPE_PIPE, FileBasicInfo, FileDispositionInfo, FileRemoteProtocolInfo, FileRenameInfo,
    GetDiskFreeSpaceExW, GetFileInformationByHandle, GetFileInformationByHandleEx, GetFileType,
    GetFinalPathNameByHandleW, SetFileInformationByHandle,
};
use windows_sys::Win32::System::IO::IO_STATUS_BLOCK;
use windows_sys::Win32::System::Threading::CreateEventW;

use super::long::for_windows;

/// A name with the zero at its end.
pub(in super::super) fn wide(name: &OsStr) -> Vec<u16> {
    name.encode_wide().chain([0]).collect()
}

/// How a file is opened from a folder.
#[derive(Clone, Copy)]
pub(in super::super) struct Opening {
    pub(in super::super) access: FILE_ACCESS_RIGHTS,
    pub(in super::super) share: FILE_SHARE_MODE,
    pub(in super::super) disposition: NTCREATEFILE_CREATE_DISPOSITION,
    pub(in super::super) options: NTCREATEFILE_CREATE_OPTIONS,
}

/// Opens a path relative to an opened folder. The path may contain only names of files and folders, not `..`.
pub(in super::super) fn open_in(folder: &File, path: &Path, how: Opening) -> io::Result<File> {
    let mut name: Vec<u16> = Vec::new();
    for part in path.components() {
        let Component::Normal(part) = part else { return Err(io::ErrorKind::InvalidInput.into()) };
        if !name.is_empty() {
            name.push(u16::from(b'\\'));
        }
        name.extend(part.encode_wide());
    }
    let length = u16::try_from(name.len() * 2).map_err(|_| io::Error::from(io::ErrorKind::InvalidFilename))?;
    let text = UNICODE_STRING { Length: length, MaximumLength: length, Buffer: name.as_mut_ptr() };
    let attributes = OBJECT_ATTRIBUTES {
        Length: size_of::<OBJECT_ATTRIBUTES>() as u32,
        RootDirectory: folder.as_raw_handle(),
        ObjectName: &raw const text,
        Attributes: OBJ_CASE_INSENSITIVE,
        SecurityDescriptor: ptr::null(),
        SecurityQualityOfService: ptr::null(),
    };
    let mut handle: HANDLE = ptr::null_mut();
    // SAFETY: the structure is plain numbers and pointers, for which zero is a value.
    let mut status: IO_STATUS_BLOCK = unsafe { mem::zeroed() };
    // SAFETY: see the module's text; `attributes` and `text` point to values of this function.
    let result = unsafe {
        NtCreateFile(
            &raw mut handle,
            how.access,
            &raw const attributes,
            &raw mut status,
            ptr::null(),
            FILE_ATTRIBUTE_NORMAL,
            how.share,
            how.disposition,
            how.options | FILE_SYNCHRONOUS_IO_NONALERT | FILE_OPEN_FOR_BACKUP_INTENT,
            ptr::null(),
            0,
        )
    };
    if result < 0 {
        // SAFETY: the function has no preconditions.
        let code = unsafe { RtlNtStatusToDosError(result) };
        return Err(io::Error::from_raw_os_error(code.cast_signed()));
    }
    // SAFETY: the call has just given this handle, and nothing else has it.
    Ok(unsafe { File::from_raw_handle(handle) })
}

/// What Windows reports about an opened file or folder.
pub(in super::super) struct Information {
    pub(in super::super) volume: u32,
    pub(in super::super) index: u64,
    pub(in super::super) links: u32,
    pub(in super::super) length: u64,
    /// In units of 100 ns since 1601.
    pub(in super::super) written: i64,
    pub(in super::super) changed: i64,
}

pub(in super::super) fn information(file: &File) -> io::Result<Information> {
    let mut found = BY_HANDLE_FILE_INFORMATION::default();
    // SAFETY: see the module's text.
    succeeded(unsafe { GetFileInformationByHandle(file.as_raw_handle(), &raw mut found) })?;
    let mut times = FILE_BASIC_INFO::default();
    query(file, FileBasicInfo, &mut times)?;
    let joined = |high: u32, low: u32| (u64::from(high) << 32) | u64::from(low);
    Ok(Information {
        volume: found.dwVolumeSerialNumber,
        index: joined(found.nFileIndexHigh, found.nFileIndexLow),
        links: found.nNumberOfLinks,
        length: joined(found.nFileSizeHigh, found.nFileSizeLow),
        written: times.LastWriteTime,
        changed: times.ChangeTime,
    })
}

fn query<T>(file: &File, class: FILE_INFO_BY_HANDLE_CLASS, found: &mut T) -> io::Result<()> {
    let (place, size) = ((&raw mut *found).cast(), size_of::<T>() as u32);
    // SAFETY: see the module's text; the callers give the structure of the class.
    succeeded(unsafe { GetFileInformationByHandleEx(file.as_raw_handle(), class, place, size) })
}

/// Whether a file is on another machine.
pub(in super::super) fn is_remote(file: &File) -> bool {
    let mut found = FILE_REMOTE_PROTOCOL_INFO::default();
    // For files of this machine, the query is an error.
    query(file, FileRemoteProtocolInfo, &mut found).is_ok()
}

/// The kind of a handle that is not a file or folder, with its article; `None` for files and folders.
pub(in super::super) fn special(file: &File) -> Option<&'static str> {
    // SAFETY: see the module's text.
    match unsafe { GetFileType(file.as_raw_handle()) } {
        FILE_TYPE_DISK => None,
        FILE_TYPE_PIPE => Some("a named pipe"),
        FILE_TYPE_CHAR => Some("a device"),
        _ => Some("something else"),
    }
}

/// The present path of an opened file or folder.
pub(in super::super) fn path_of(file: &File) -> io::Result<PathBuf> {
    let mut path = vec![0_u16; 512];
    loop {
        let length = path.len() as u32;
        // SAFETY: see the module's text; the buffer has `length` characters.
        let needed = unsafe { GetFinalPathNameByHandleW(file.as_raw_handle(), path.as_mut_ptr(), length, 0) };
        match needed as usize {
            0 => return Err(io::Error::last_os_error()),
            used if used < path.len() => return Ok(OsString::from_wide(&path[..used]).into()),
            more => path.resize(more + 1, 0),
        }
    }
}

/// Removes an opened file when its last handle is closed. The file must be open with the right to delete it.
pub(in super::super) fn remove(file: &File) -> io::Result<()> {
    let remove = FILE_DISPOSITION_INFO { DeleteFile: true };
    let (place, size) = ((&raw const remove).cast(), size_of::<FILE_DISPOSITION_INFO>() as u32);
    // SAFETY: see the module's text; the structure is that of the class.
    succeeded(unsafe { SetFileInformationByHandle(file.as_raw_handle(), FileDispositionInfo, place, size) })
}

/// Moves an opened file to the path `to`, and replaces an older file there. The file must be open with the right to
/// delete it.
pub(in super::super) fn rename(file: &File, to: &Path) -> io::Result<()> {
    let name = wide(std::path::absolute(for_windows(to)?)?.as_os_str());
    let name_at = offset_of!(FILE_RENAME_INFO, FileName);
    // Of 8-byte words, so that the structure is aligned.
    let mut words = vec![0_u64; (name_at + name.len() * 2).div_ceil(8).max(size_of::<FILE_RENAME_INFO>().div_ceil(8))];
    let place: *mut FILE_RENAME_INFO = words.as_mut_ptr().cast();
    // SAFETY: the words are aligned for the structure, and hold it and the whole name behind its fields.
    unsafe {
        (*place).Anonymous.ReplaceIfExists = true;
        (*place).FileNameLength = ((name.len() - 1) * 2) as u32;
        ptr::copy_nonoverlapping(name.as_ptr(), place.cast::<u8>().add(name_at).cast(), name.len());
    }
    let size = (words.len() * 8) as u32;
    // SAFETY: see the module's text; the structure is that of the class.
    succeeded(unsafe { SetFileInformationByHandle(file.as_raw_handle(), FileRenameInfo, place.cast(), size) })
}

/// Free bytes of a folder's volume for this user.
pub(in super::super) fn free_bytes(folder: &Path) -> io::Result<u64> {
    let (path, mut free) = (wide(for_windows(folder)?.as_os_str()), 0);
    // SAFETY: see the module's text.
    succeeded(unsafe { GetDiskFreeSpaceExW(path.as_ptr(), &raw mut free, ptr::null_mut(), ptr::null_mut()) })?;
    Ok(free)
}

/// Makes a system object of this name, which exists until every handle to it is closed; `None` if the object already
/// exists.
pub(in super::super) fn new_object(name: &str) -> io::Result<Option<OwnedHandle>> {
    let name = wide(name.as_ref());
    // SAFETY: see the module's text.
    let handle = unsafe { CreateEventW(ptr::null(), 1, 0, name.as_ptr()) };
    let error = io::Error::last_os_error();
    if handle.is_null() || handle == INVALID_HANDLE_VALUE {
        return Err(error);
    }
    // SAFETY: the call has just given this handle, and nothing else has it.
    let handle = unsafe { OwnedHandle::from_raw_handle(handle) };
    Ok((error.raw_os_error() != Some(ERROR_ALREADY_EXISTS.cast_signed())).then_some(handle))
}

/// The system's reason if a call has failed.
pub(super) fn succeeded(result: i32) -> io::Result<()> {
    if result == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
