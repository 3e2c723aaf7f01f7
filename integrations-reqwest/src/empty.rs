//! What a request does while no instance can take it.

use std::time::Duration;

/// How long a request without a timeout waits by default: longer than a restart of an instance, shorter than a user's patience.
pub(crate) const DEFAULT_WAIT: Duration = Duration::from_secs(10);

/// What a request does while no instance can take it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenEmpty {
    /// It waits up to its own timeout (`RequestBuilder::timeout`), or for this long if it has none. The default is to wait 10 s.
    Wait(Duration),
    /// It fails at once if nobody is known, and as soon as everybody was tried in vain. The first set of a service is waited for while
    /// the registry answers, since the first request opens its watch.
    FailFast,
}

impl Default for WhenEmpty {
    fn default() -> Self {
        Self::Wait(DEFAULT_WAIT)
    }
}
