//! What a conversion is given.

use super::PrecisionOptions;
use crate::coverage::Coverage;
use crate::{Floors, Progress};
use tileforge_contract::{Contract, Precision, Provider};
use tileforge_session::Environment;

/// One conversion: the target, and the caller's options.
pub(crate) struct Job<'a> {
    pub(crate) environment: &'a Environment,
    pub(crate) progress: &'a dyn Progress,
    pub(crate) precision: Precision,
    pub(crate) provider: Provider,
    pub(crate) contract: &'a Contract,
    pub(crate) floors: &'a Floors,
    pub(crate) options: &'a PrecisionOptions,
    pub(crate) coverage: &'a Coverage,
}
