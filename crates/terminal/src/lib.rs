//! What the command-line programs share.
//!
//! Results go to standard output, everything else to standard error. Nothing in this crate depends on a certain
//! program.
//!
//! | item | does |
//! |---|---|
//! | [`Verbosity`], [`is_quiet`], [`is_verbose`] | `-v` and `--quiet` |
//! | [`start_log`] | shows warnings, or what `-v` or `RUST_LOG` asks for |
//! | [`print()`], [`print_json`], [`print_beside`] | a result, a result for machines, a result beside other ones |
//! | [`report`], [`report_error`] | a remark, an error |
//! | [`chain`] | an error with its causes, and with what the user can do |
//! | [`Exit`] | the exit codes of all programs, and what help says about them |
//! | [`Failure`], [`end`] | why a command failed, and how that ends the program |
//! | [`explain_bus_errors`] | names the file that was cut while it was mapped |
//! | [`stop_on_signals`], [`end_at_once`] | ends the program at a signal or now, without unfinished files |
//! | [`Progress`] | how far long work is: a bar on a terminal, a line now and then elsewhere |
//! | [`digests()`] | digests of large files, remembered in the cache and shown while they are computed |
//! | [`print_completions`], [`print_manual`] | completions for a shell, manual pages |
//! | [`RequiredSignature`] | the option `--require-signature` |
//! | [`number`] | a parser for finite numbers in a range |
//! | [`counted`] | "1 tile", "3 tiles" |
//! | [`cache_folder`] | where to keep what can be made again |
//! | [`engine_folders`] | where engines are looked for by name |

/// The examples of the README are compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod cache;
mod chain;
mod completions;
mod counted;
mod data;
mod digests;
mod end;
mod exit;
mod lines;
mod log;
mod manual;
mod number;
mod output;
mod placing;
mod progress;
mod signals;
mod signature;
mod system;
#[cfg(feature = "testing")]
pub mod testing;
mod unit;
mod verbosity;
mod visible;

pub use cache::cache_folder;
pub use chain::{chain, chain_with};
pub use clap_complete::Shell;
pub use completions::print_completions;
pub use counted::{counted, counted_as};
pub use data::{data_folder, engine_folders};
pub use digests::digests;
pub use end::{Failure, end};
pub use exit::Exit;
pub use log::start_log;
pub use manual::print_manual;
pub use number::{number, whole};
pub use output::{PrintError, print, print_beside, print_json, report, report_error};
pub use placing::{Placing, ProviderChoice, STREAMS_MAXIMUM, threads_maximum};
pub use progress::Progress;
pub use signals::{end_at_once, leave_signals_to_parent, on_first_signal, stop_on_signals};
pub use signature::RequiredSignature;
pub use system::bus_error::explain_bus_errors;
pub use unit::Unit;
pub use verbosity::{Verbosity, is_quiet, is_verbose};
