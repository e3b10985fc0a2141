//! All rules of a contract: those of every task, and those of its own.

use crate::{Contract, Inpaint, Result, Task, Upscale};

impl Contract {
    /// Checks every rule.
    ///
    /// # Errors
    /// [`Error::Rule`](crate::Error::Rule) with the first broken rule.
    pub fn validate(&self) -> Result<()> {
        self.check_rules()?;
        match self.task {
            Task::Upscale => Upscale::of(self).map(drop),
            Task::Inpaint => Inpaint::of(self).map(drop),
            _ => Ok(()),
        }
    }
}
