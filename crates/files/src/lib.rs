//! Files of users: how they are opened, what may be written, whose files are trusted, and what is unfinished.
//!
//! | item | does |
//! |---|---|
//! | [`open`], [`open_in`], [`read`], [`read_text`] | open regular files only, never wait, and read with a limit |
//! | [`link_or_copy`] | gives a file a second name |
//! | [`bounded`] | shortens messages that hold texts of files |
//! | [`Digests`] | SHA-256 of files, each computed once |
//! | [`is_plain`] | says whether a name that comes out of a file stays in its folder |
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
mod digests;
pub mod installation;
mod kept;
mod link;
mod live;
mod name;
mod open;
pub mod outputs;
pub mod owner;
mod transfer;
pub mod unfinished;

pub use bounded::{bounded, bounded_to};
pub use digests::{Digesting, Digests, FileSha256, stated_by_hub_cache};
pub use kept::{Kept, NotKept};
pub use link::link_or_copy;
pub use name::is_plain;
pub use open::{
    Refused, TEXT_MAXIMUM_BYTES, open, open_folder, open_folder_in, open_in, open_to_append, read, read_opened,
    read_text,
};
pub use transfer::Transfer;
