//! The checker: one for a service, shared by whoever picks from it.

use std::fmt;
use std::sync::Arc;

use discovery_core::{Balancer, Watch};
use tokio::task::AbortHandle;

use crate::board::Board;
use crate::follow::follow;
use crate::{Attachment, Check, CheckerOptions, Report};

/// Checks all instances of a watched service, at an interval. Clones share everything.
///
/// It checks whether or not a balancer is attached, and ends with its last clone and attachment: no check begins after that, and one
/// that is under way is given up. Make one for each service of the process, and attach every balancer of it.
#[derive(Clone)]
pub struct Checker {
    inner: Arc<Inner>,
}

struct Inner {
    board: Arc<Board>,
    /// Follows the watch.
    task: AbortHandle,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.task.abort();
        // The follower may be at work on another thread; a closed board takes nothing from it.
        self.board.close();
    }
}

impl Checker {
    /// Checks a watched service with default options.
    ///
    /// # Panics
    /// Outside of a Tokio runtime, as everything that starts tasks.
    pub fn new(watch: Watch, check: impl Check) -> Self {
        Self::with_options(watch, check, CheckerOptions::default())
    }

    /// Checks a watched service.
    ///
    /// # Panics
    /// Outside of a Tokio runtime, as everything that starts tasks.
    pub fn with_options(watch: Watch, check: impl Check, options: CheckerOptions) -> Self {
        let board = Arc::new(Board::default());
        let task = tokio::spawn(follow(watch, Arc::new(check), options, board.clone())).abort_handle();
        Self { inner: Arc::new(Inner { board, task }) }
    }

    /// Tells a balancer of the same service what is known, and from now on what is found.
    ///
    /// Only unhealthiness is told, and its end; what a balancer hears of an instance that it does not know is told again when it does.
    ///
    /// # Panics
    /// Outside of a Tokio runtime, as everything that starts tasks.
    #[must_use = "the balancer is told nothing any more once the attachment is dropped"]
    pub fn attach(&self, balancer: &Balancer) -> Attachment {
        Attachment::new(self.clone(), balancer)
    }

    /// What is known of everybody in the set, sorted by id.
    pub fn reports(&self) -> Vec<Report> {
        self.inner.board.reports()
    }

    /// What is known of one instance; `None` if it is not in the set.
    pub fn report(&self, id: &str) -> Option<Report> {
        self.inner.board.report(id)
    }

    pub(crate) fn board(&self) -> &Arc<Board> {
        &self.inner.board
    }
}

impl fmt::Debug for Checker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checker").field("reports", &self.reports()).finish()
    }
}
