//! The owners of files, and the accounts that may change them: owners and lists of rights.
//!
//! On Unix, a group with write access is trusted. Here, every account in a list of rights counts: each account except
//! the user, the system and administrators counts as another user.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;

use windows_sys::Win32::Foundation::{GENERIC_ALL, GENERIC_WRITE};
use windows_sys::Win32::Security::INHERIT_ONLY_ACE;
use windows_sys::Win32::Storage::FileSystem::{
    DELETE, FILE_ADD_FILE, FILE_ALL_ACCESS, FILE_APPEND_DATA, FILE_DELETE_CHILD, FILE_EXECUTE, FILE_READ_ATTRIBUTES,
    FILE_WRITE_DATA, READ_CONTROL, SYNCHRONIZE, WRITE_DAC, WRITE_OWNER,
};

use super::calls::{self, Entry, EntryKind, Security};
use super::opening::inspect_security;

/// The system itself, its administrators, and its installer.
const SYSTEM: [&str; 3] =
    ["S-1-5-18", "S-1-5-32-544", "S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464"];
/// The accounts that stand for the owner of an inheriting object, and for the present owner.
const OWNERS: [&str; 2] = ["S-1-3-0", "S-1-3-4"];

/// Rights to change or replace a file.
const CHANGE: u32 = FILE_WRITE_DATA | FILE_APPEND_DATA | DELETE | WRITE_DAC | WRITE_OWNER | GENERIC_WRITE | GENERIC_ALL;
/// Rights to replace the content of a folder.
const EXCHANGE: u32 = FILE_DELETE_CHILD | DELETE | WRITE_DAC | WRITE_OWNER | GENERIC_ALL;
/// Rights that do not give access to a file's content.
const HARMLESS: u32 = SYNCHRONIZE | READ_CONTROL | FILE_READ_ATTRIBUTES | FILE_EXECUTE;

/// The command that protects a public key that everybody may write.
pub(crate) const TO_PROTECT_PUBLIC: &str = "icacls FILE /inheritance:r /grant:r %USERNAME%:F";
/// The remedy for a private key that others may read.
pub(crate) const TO_PROTECT_PRIVATE: &str =
    "take the rights of others away (icacls FILE /inheritance:r /grant:r %USERNAME%:F)";

/// The account that a file belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account(String);

impl fmt::Display for Account {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the account {}", self.0)
    }
}

/// The rights to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permissions(Option<Vec<Entry>>);

impl fmt::Display for Permissions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(entries) = &self.0 else { return formatter.write_str("no list of rights") };
        formatter.write_str("rights")?;
        let allowed = entries.iter().filter(|entry| entry.kind != EntryKind::Denied);
        allowed.clone().try_for_each(|entry| write!(formatter, " {}:{:x}", entry.account, entry.rights))
    }
}

/// The owner of a file, and the rights of others to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    security: Security,
    own: String,
    is_file: bool,
}

impl Standing {
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        let is_file = file.metadata()?.is_file();
        Ok(Self { security: calls::security_of(file)?, own: calls::own_account()?, is_file })
    }

    /// The standing of a path. A link is not followed.
    pub(crate) fn of_path(path: &Path) -> io::Result<Self> {
        Self::of(&inspect_security(path)?)
    }

    pub(crate) fn account(&self) -> Account {
        Account(self.security.owner.clone())
    }

    pub(crate) fn permissions(&self) -> Permissions {
        Permissions(self.security.entries.clone())
    }

    /// The rights to a key file, as messages show them.
    pub(crate) fn of_key(&self) -> Permissions {
        self.permissions()
    }

    /// Whether it belongs to this process's user. A file that an administrator makes may belong to all administrators.
    pub(crate) fn is_mine(&self) -> bool {
        self.security.owner == self.own || SYSTEM.contains(&self.security.owner.as_str())
    }

    /// Whether any account except the user's own and the system's may write.
    pub(crate) fn everybody_writes(&self) -> bool {
        self.others_have(CHANGE | FILE_DELETE_CHILD)
    }

    /// Whether any account except the user's own and the system's may read or write it.
    pub(crate) fn others_enter(&self) -> bool {
        self.others_have(!HARMLESS)
    }

    fn others_have(&self, rights: u32) -> bool {
        grants(&self.security, rights, std::slice::from_ref(&self.own))
    }

    /// Whether a file with this standing may replace a file with the standing `other`: it is a file of this user with
    /// the same rights, and no other user may write it.
    pub(crate) fn may_replace(&self, other: &Self) -> bool {
        self.is_file && self.security == other.security && self.is_mine() && !self.everybody_writes()
    }
}

/// Whether an account that is not trusted has one of these rights.
fn grants(security: &Security, rights: u32, trusted: &[String]) -> bool {
    let Some(entries) = &security.entries else { return true };
    entries.iter().any(|entry| {
        let counts = entry.kind != EntryKind::Denied && u32::from(entry.flags) & INHERIT_ONLY_ACE == 0;
        let is_trusted = trusted.contains(&entry.account)
            || SYSTEM.contains(&entry.account.as_str())
            || OWNERS.contains(&entry.account.as_str());
        counts && !is_trusted && entry.rights & rights != 0
    })
}

/// Accounts that may change what this program relies on: this process's user, the system's own, and the owner of this
/// program.
pub(crate) struct Trusted(Vec<String>);

/// Why a file or folder is not trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Owner(Account),
    Writable(Permissions),
}

impl Trusted {
    pub(crate) fn new(executable: Option<&Path>) -> Self {
        let own = calls::own_account().ok();
        let program = executable.and_then(|path| Standing::of_path(path).ok()).map(|found| found.security.owner);
        Self(own.into_iter().chain(program).chain(SYSTEM.map(str::to_owned)).collect())
    }

    /// Whether only trusted accounts can change a path. `levels` is the number of levels above the file that is
    /// checked: a new file in a library's own folder could be loaded with the library, but not a new file in a folder
    /// above.
    pub(crate) fn check(&self, path: &Path, levels: usize) -> io::Result<Result<(), Fault>> {
        let found = Standing::of_path(path)?;
        let rights = match levels {
            0 => CHANGE,
            1 => EXCHANGE | FILE_ADD_FILE | GENERIC_WRITE,
            _ => EXCHANGE,
        };
        if !self.0.contains(&found.security.owner) {
            return Ok(Err(Fault::Owner(found.account())));
        }
        let is_open = grants(&found.security, rights, &self.0);
        Ok(if is_open { Err(Fault::Writable(found.permissions())) } else { Ok(()) })
    }
}

/// All rights for this user, the system and its administrators, and none for others, in SDDL. Nothing is inherited
/// from the folder above. `inherit`: the content of the folder inherits the rights.
pub(super) fn private(inherit: bool) -> io::Result<String> {
    let (own, inherit) = (calls::own_account()?, if inherit { "OICI" } else { "" });
    Ok(format!("D:P(A;{inherit};FA;;;{own})(A;{inherit};FA;;;SY)(A;{inherit};FA;;;BA)"))
}

/// All rights to a file.
pub(super) const ALL: u32 = FILE_ALL_ACCESS;

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(account: &str, rights: u32, flags: u8) -> Entry {
        Entry { kind: EntryKind::Allowed, flags, rights, account: account.into() }
    }

    #[test]
    fn every_account_but_the_users_and_the_systems_is_another() {
        let with = |entries: &[Entry]| Standing {
            security: Security { owner: "S-1-5-21-1".into(), entries: Some(entries.to_vec()) },
            own: "S-1-5-21-1".into(),
            is_file: true,
        };
        let inherited_only = INHERIT_ONLY_ACE as u8;
        let all = FILE_ALL_ACCESS;
        for account in ["S-1-5-21-1", "S-1-5-18", "S-1-5-32-544", "S-1-3-4"] {
            assert!(!with(&[entry(account, all, 0)]).others_enter(), "{account}");
        }
        for account in ["S-1-1-0", "S-1-5-11", "S-1-5-32-545", "S-1-5-21-2"] {
            assert!(with(&[entry(account, all, 0)]).everybody_writes(), "{account}");
            assert!(!with(&[entry(account, all, inherited_only)]).everybody_writes(), "{account}");
            // Reading.
            let reads = with(&[entry(account, 0x0012_0089, 0)]);
            assert!(!reads.everybody_writes() && reads.others_enter(), "{account}");
        }
        let none = Standing { security: Security { owner: "S-1-5-21-1".into(), entries: None }, ..with(&[]) };
        assert!(none.everybody_writes() && none.others_enter());
        let unknown = Entry { kind: EntryKind::Other, ..entry("", u32::MAX, 0) };
        assert!(with(&[unknown]).everybody_writes());
    }

    #[test]
    fn what_this_user_makes_is_this_users() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "x").unwrap();
        let found = Standing::of_path(&file).unwrap();
        assert!(found.is_mine(), "{} {:?}", found.account(), calls::own_account());
        assert!(!found.everybody_writes(), "{}", found.permissions());
        let trusted = Trusted::new(std::env::current_exe().ok().as_deref());
        assert_eq!(trusted.check(&file, 0).unwrap(), Ok(()));
        let private = folder.path().join("private");
        calls::make_folder(&private, &super::private(true).unwrap()).unwrap();
        assert!(!Standing::of_path(&private).unwrap().others_enter());
    }
}
