//! Which engines several cards need: for each card and model, the size and the precision of the fastest plan that fits
//! on the card. Plans are built and read; nothing is run.
//!
//! | module | holds |
//! |---|---|
//! | `file` | the cards and models that are asked for |
//! | `candidate` | an engine in one precision, and what its largest graph takes |
//! | `assessed` | the candidates of every card and model, and the one that is chosen |
//! | `together` | what the parts of a pipeline take of a card together |

mod assessed;
mod candidate;
mod file;
mod together;

pub use assessed::{Entry, assess};
pub use candidate::{Candidate, Evidence};
pub use file::Fleet;
pub use together::Together;
