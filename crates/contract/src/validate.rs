//! All rules of a contract: the rules for every task, and the rules for its own task.

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
