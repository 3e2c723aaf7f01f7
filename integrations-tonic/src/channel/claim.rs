//! A pick while its request is under way, and what an attempt knows of others of the same call.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use discovery_core::{Outcome, Pick};

/// What one attempt tells whoever makes another one beside it or after it.
#[derive(Debug, Default)]
pub(super) struct Trace {
    /// Whom the attempt before was sent to.
    avoid: Option<Arc<str>>,
    /// Whom this one was sent to; `None` if nobody asks.
    to: Option<Mutex<Option<Arc<str>>>>,
    /// Whether another attempt was faster. Read by the thread that set it, hence relaxed.
    is_beaten: AtomicBool,
}

impl Trace {
    /// One that remembers whom it was sent to, for an attempt that goes elsewhere if possible.
    pub(super) fn avoiding(avoid: Option<Arc<str>>) -> Self {
        Self { avoid, to: Some(Mutex::default()), is_beaten: AtomicBool::new(false) }
    }

    pub(super) fn avoid(&self) -> Option<&str> {
        self.avoid.as_deref()
    }

    /// Whom the attempt was sent to last.
    pub(super) fn to(&self) -> Option<Arc<str>> {
        self.to.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says that another attempt was faster: given up, this one counts as failed. As merely cancelled it would teach nobody how slow the
    /// instance is.
    pub(super) fn beat(&self) {
        self.is_beaten.store(true, Ordering::Relaxed);
    }
}

/// A pick whose outcome depends on others if it is dropped.
pub(super) struct Claim<'a> {
    pick: Option<Pick>,
    trace: &'a Trace,
}

impl<'a> Claim<'a> {
    pub(super) fn new(pick: Pick, trace: &'a Trace) -> Self {
        if let Some(to) = &trace.to {
            *to.lock().unwrap_or_else(PoisonError::into_inner) = Some(pick.instance().id().into());
        }
        Self { pick: Some(pick), trace }
    }

    /// The id of the instance.
    pub(super) fn whom(&self) -> Arc<str> {
        self.pick.as_ref().map_or_else(|| "".into(), |pick| pick.instance().id().into())
    }

    pub(super) fn finish(mut self, outcome: Outcome) {
        if let Some(pick) = self.pick.take() {
            pick.finish(outcome);
        }
    }

    /// Nothing was sent.
    pub(super) fn discard(mut self) {
        if let Some(pick) = self.pick.take() {
            pick.discard();
        }
    }

    /// Hands the pick on; it is there until one of the others takes it.
    pub(super) fn into_pick(mut self) -> Option<Pick> {
        self.pick.take()
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if let Some(pick) = self.pick.take()
            && self.trace.is_beaten.load(Ordering::Relaxed)
        {
            pick.finish(Outcome::Failure);
        }
    }
}
