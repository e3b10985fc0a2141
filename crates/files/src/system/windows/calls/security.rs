//! Security descriptors: the owner of a file, and the rights of each account to it.

use std::fs::File;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::path::Path;
use std::ptr;

use windows_sys::Win32::Foundation::{ERROR_SUCCESS, HANDLE, LocalFree};
use windows_sys::Win32::Security::Authorization::{
    ConvertSidToStringSidW, ConvertStringSecurityDescriptorToSecurityDescriptorW, GetSecurityInfo, SDDL_REVISION_1,
    SE_FILE_OBJECT,
};
use windows_sys::Win32::Security::{
    ACCESS_ALLOWED_ACE, ACE_HEADER, ACL, DACL_SECURITY_INFORMATION, GetAce, GetTokenInformation,
    OWNER_SECURITY_INFORMATION, PSECURITY_DESCRIPTOR, PSID, SECURITY_ATTRIBUTES, TOKEN_QUERY, TOKEN_USER, TokenUser,
};
use windows_sys::Win32::Storage::FileSystem::{
    CREATE_NEW, CreateDirectoryW, CreateFileW, FILE_ATTRIBUTE_TEMPORARY, FILE_SHARE_DELETE, FILE_SHARE_READ,
    FILE_SHARE_WRITE,
};
use windows_sys::Win32::System::SystemServices::{ACCESS_ALLOWED_ACE_TYPE, ACCESS_DENIED_ACE_TYPE};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, OpenProcessToken};

use super::file::{succeeded, wide};
use super::long::for_windows;

/// An entry of a list of rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Entry {
    pub(in super::super) kind: EntryKind,
    /// Whether and how it is inherited.
    pub(in super::super) flags: u8,
    pub(in super::super) rights: u32,
    /// The account's SID, such as S-1-5-18; empty for a kind that this crate does not know.
    pub(in super::super) account: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum EntryKind {
    Allowed,
    Denied,
    /// Another kind. It may allow anything.
    Other,
}

/// The owner of a file, and its list of rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Security {
    pub(in super::super) owner: String,
    /// `None`: there is no list, so everybody has all rights.
    pub(in super::super) entries: Option<Vec<Entry>>,
}

/// Memory that Windows has allocated.
struct Local(*mut core::ffi::c_void);

impl Drop for Local {
    fn drop(&mut self) {
        // SAFETY: the memory came from a function whose result is freed with `LocalFree`, and is freed once.
        unsafe { LocalFree(self.0) };
    }
}

pub(in super::super) fn security_of(file: &File) -> io::Result<Security> {
    let (mut owner, mut list): (PSID, *mut ACL) = (ptr::null_mut(), ptr::null_mut());
    let mut descriptor: PSECURITY_DESCRIPTOR = ptr::null_mut();
    // SAFETY: see the module's text.
    let result = unsafe {
        GetSecurityInfo(
            file.as_raw_handle(),
            SE_FILE_OBJECT,
            OWNER_SECURITY_INFORMATION | DACL_SECURITY_INFORMATION,
            &raw mut owner,
            ptr::null_mut(),
            &raw mut list,
            ptr::null_mut(),
            &raw mut descriptor,
        )
    };
    if result != ERROR_SUCCESS {
        return Err(io::Error::from_raw_os_error(result.cast_signed()));
    }
    // The owner and the list are parts of the descriptor.
    let _descriptor = Local(descriptor);
    // SAFETY: the call has set both pointers to parts of the descriptor, or left them null.
    unsafe { Ok(Security { owner: text_of(owner)?, entries: entries_of(list)? }) }
}

/// # Safety
/// `list` is null or a list that Windows has made.
unsafe fn entries_of(list: *const ACL) -> io::Result<Option<Vec<Entry>>> {
    if list.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let count = u32::from(unsafe { (*list).AceCount });
    let entry = |number| {
        let mut place = ptr::null_mut();
        // SAFETY: the caller's promise, and `number` is below the count.
        succeeded(unsafe { GetAce(list, number, &raw mut place) })?;
        // SAFETY: every entry begins with a header.
        let ACE_HEADER { AceType, AceFlags, .. } = unsafe { *place.cast::<ACE_HEADER>() };
        let kind = match u32::from(AceType) {
            ACCESS_ALLOWED_ACE_TYPE => EntryKind::Allowed,
            ACCESS_DENIED_ACE_TYPE => EntryKind::Denied,
            _ => {
                return Ok(Entry { kind: EntryKind::Other, flags: AceFlags, rights: u32::MAX, account: String::new() });
            }
        };
        // SAFETY: entries of both kinds have this form: the rights, then the account's SID.
        let (rights, account) = unsafe {
            let rights = (*place.cast::<ACCESS_ALLOWED_ACE>()).Mask;
            (rights, text_of(place.cast::<u8>().add(offset_of!(ACCESS_ALLOWED_ACE, SidStart)).cast())?)
        };
        Ok(Entry { kind, flags: AceFlags, rights, account })
    };
    (0..count).map(entry).collect::<io::Result<_>>().map(Some)
}

/// # Safety
/// `sid` is null or a SID that Windows has made.
unsafe fn text_of(sid: PSID) -> io::Result<String> {
    let mut text = ptr::null_mut();
    // SAFETY: the caller's promise. Null is an error of the function.
    succeeded(unsafe { ConvertSidToStringSidW(sid, &raw mut text) })?;
    let _text = Local(text.cast());
    let mut units = Vec::new();
    // SAFETY: the text ends with a zero.
    unsafe {
        while *text.add(units.len()) != 0 {
            units.push(*text.add(units.len()));
        }
    }
    Ok(String::from_utf16_lossy(&units))
}

/// The SID of the user of this process.
pub(in super::super) fn own_account() -> io::Result<String> {
    let mut token: HANDLE = ptr::null_mut();
    // SAFETY: see the module's text; this process's handle is always valid.
    succeeded(unsafe { OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &raw mut token) })?;
    // SAFETY: the call has just given this handle, and nothing else has it.
    let token = unsafe { OwnedHandle::from_raw_handle(token) };
    // Of 8-byte words, so that the structure is aligned. A SID has at most 68 bytes.
    let mut found = [0_u64; 32];
    let mut used = 0;
    // SAFETY: see the module's text; the structure begins the buffer, and its SID lies in the buffer, too.
    unsafe {
        let size = (found.len() * 8) as u32;
        succeeded(GetTokenInformation(
            token.as_raw_handle(),
            TokenUser,
            found.as_mut_ptr().cast(),
            size,
            &raw mut used,
        ))?;
        text_of((*found.as_ptr().cast::<TOKEN_USER>()).User.Sid)
    }
}

/// A security descriptor that was made from its text.
struct Descriptor(Local);

impl Descriptor {
    fn new(text: &str) -> io::Result<Self> {
        let (text, mut made) = (wide(text.as_ref()), ptr::null_mut());
        // SAFETY: see the module's text.
        succeeded(unsafe {
            ConvertStringSecurityDescriptorToSecurityDescriptorW(
                text.as_ptr(),
                SDDL_REVISION_1,
                &raw mut made,
                ptr::null_mut(),
            )
        })?;
        Ok(Self(Local(made)))
    }

    fn attributes(&self) -> SECURITY_ATTRIBUTES {
        let size = size_of::<SECURITY_ATTRIBUTES>() as u32;
        SECURITY_ATTRIBUTES { nLength: size, lpSecurityDescriptor: self.0.0, bInheritHandle: 0 }
    }
}

/// Makes a folder with a security descriptor, which is written in SDDL.
pub(in super::super) fn make_folder(path: &Path, descriptor: &str) -> io::Result<()> {
    let (path, descriptor) = (wide(for_windows(path)?.as_os_str()), Descriptor::new(descriptor)?);
    let attributes = descriptor.attributes();
    // SAFETY: see the module's text.
    succeeded(unsafe { CreateDirectoryW(path.as_ptr(), &raw const attributes) })
}

/// Makes a new file with a security descriptor, which is written in SDDL, to read and write it, and to delete it.
pub(in super::super) fn make_file(path: &Path, descriptor: &str, access: u32) -> io::Result<File> {
    let (path, descriptor) = (wide(for_windows(path)?.as_os_str()), Descriptor::new(descriptor)?);
    let attributes = descriptor.attributes();
    let share = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
    // SAFETY: see the module's text.
    let handle = unsafe {
        CreateFileW(
            path.as_ptr(),
            access,
            share,
            &raw const attributes,
            CREATE_NEW,
            FILE_ATTRIBUTE_TEMPORARY,
            ptr::null_mut(),
        )
    };
    if handle == windows_sys::Win32::Foundation::INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just given this handle, and nothing else has it.
    Ok(unsafe { File::from_raw_handle(handle) })
}
