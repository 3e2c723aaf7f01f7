//! A balancer that is told what a checker finds.

use std::fmt;

use discovery_core::Balancer;
use tokio::task::AbortHandle;

use crate::Checker;

/// Has a balancer told what a checker finds, while it lives. It keeps both.
///
/// Dropped, it takes back what was told: of whom nobody knows anything, nothing is held against them.
#[must_use = "the balancer is told nothing any more once the attachment is dropped"]
pub struct Attachment {
    checker: Checker,
    number: u64,
    /// Tells again what is known whenever the balancer may know new instances.
    task: AbortHandle,
}

impl Attachment {
    pub(crate) fn new(checker: Checker, balancer: &Balancer) -> Self {
        // Subscribed first, so that no selection is missed between what is told now and what is told then.
        let mut selections = balancer.selections();
        let board = checker.board().clone();
        let number = board.attach(balancer);
        let task = tokio::spawn(async move {
            loop {
                selections.changed().await;
                board.tell(number);
            }
        });
        Self { checker, number, task: task.abort_handle() }
    }

    /// The checker.
    pub fn checker(&self) -> &Checker {
        &self.checker
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.task.abort();
        self.checker.board().detach(self.number);
    }
}

impl fmt::Debug for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attachment").field("checker", &self.checker).finish()
    }
}
