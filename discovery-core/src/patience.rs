//! What a call does while no instance can take it.

use std::time::Duration;

/// How long a call without a deadline waits for an instance by default: longer than a restart of one, shorter than a user's patience.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(10);

/// What a call does while no instance can take it. The integrations share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenEmpty {
    /// It waits up to its own deadline, or for this long if it has none. The default is to wait for [`DEFAULT_WAIT`].
    Wait(Duration),
    /// It fails at once if nobody is known, and as soon as everybody was tried in vain. Who can be called is learned from a first set or
    /// by a first dial, which may be waited for; the integration's builder says what is.
    FailFast,
}

impl Default for WhenEmpty {
    fn default() -> Self {
        Self::Wait(DEFAULT_WAIT)
    }
}

impl WhenEmpty {
    /// How long a call without a deadline waits at most, for whatever it waits.
    pub fn patience(self) -> Duration {
        match self {
            Self::Wait(patience) => patience,
            // What may be waited for then is a first set or a first dial.
            Self::FailFast => DEFAULT_WAIT,
        }
    }
}
