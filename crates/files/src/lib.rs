//! Files of users: how they are opened, what may be written, whose files are trusted, and what is unfinished.
//!
//! | item | does |
//! |---|---|
//! | [`open`], [`open_in`], [`read`], [`read_text`] | open regular files only, never wait, and read with a limit |
//! | [`link_or_copy`], [`exchange`], [`is_same_file`], [`not_replaced`], [`real_path`] | names of files and folders |
//! | [`Mapped`] | an opened file and its bytes in memory |
//! | [`UsualPermissions`], [`give_usual_permissions`] | the permissions of any new file |
//! | [`bounded`] | shortens messages that hold texts of files |
//! | [`Digests`] | SHA-256 of files, each computed once |
//! | [`is_plain`], [`from_bytes`], [`with_slashes`] | names that come out of files, and names of any bytes |
//! | [`installation`] | says where files are that came with the program |
//! | [`outputs`] | refuses to write over an input, for all programs |
//! | [`unfinished`] | makes files and folders under temporary names, and removes those that killed programs left |
//! | [`Kept`] | a folder beside a place that keeps a download until it is whole |
//! | [`owner`] | says whether another user can change a file |
//! | [`Transfer`] | is told how far files are that are downloaded or sent |

/// The examples of the README are compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod bounded;
mod cleanup;
mod digests;
pub mod installation;
mod kept;
mod link;
mod mapped;
mod name;
mod open;
pub mod outputs;
pub mod owner;
mod permissions;
mod refused;
mod system;
mod transfer;
pub mod unfinished;

pub use bounded::{bounded, bounded_to};
pub use digests::{Digesting, Digests, FileSha256, stated_by_hub_cache};
pub use kept::{Kept, NotKept};
pub use link::{exchange, is_same_file, link_or_copy, not_replaced, real_path};
pub use mapped::Mapped;
pub use name::{from_bytes, is_plain, with_slashes};
pub use open::{
    TEXT_MAXIMUM_BYTES, is_named_pipe, open, open_folder, open_folder_in, open_in, open_to_append, path_of_folder,
    read, read_opened, read_text,
};
pub use permissions::{UsualPermissions, give_usual_permissions};
pub use refused::Refused;
pub use transfer::Transfer;
