//! Priorities: who is asked first, and who only steps in.
//!
//! Source: Envoy's priority levels (docs, "Priority levels"); see [`share`](super::share) for how much each takes over.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::Instance;

type Of = dyn Fn(&Instance) -> u32 + Send + Sync;

/// Which priority an instance has. The lower comes first; the next takes over what the first cannot carry.
///
/// A level carries everything as long as `1 / 1.4` (71 %) of its weight is available; with less, the share of what is available times 1.4.
#[derive(Clone)]
pub struct Priorities(Arc<Of>);

impl Priorities {
    /// Reads the priority from the metadata of this name. An instance without it, or with something that is no number from 0 to
    /// 4,294,967,295 there, has priority 0: it is served rather than forgotten.
    pub fn metadata(name: impl Into<String>) -> Self {
        let name = name.into();
        Self::new(move |instance| instance.metadata(&name).and_then(|text| text.trim().parse().ok()).unwrap_or(0))
    }

    /// Asks this for every instance whenever somebody's record or health changes.
    pub fn new(of: impl Fn(&Instance) -> u32 + Send + Sync + 'static) -> Self {
        Self(Arc::new(of))
    }

    /// The priority of an instance. One at which the function panics comes last, which is logged.
    pub fn of(&self, instance: &Instance) -> u32 {
        catch_unwind(AssertUnwindSafe(|| (self.0)(instance))).unwrap_or_else(|_| {
            tracing::error!(id = instance.id(), "the function of priorities panicked; the instance comes last");
            u32::MAX
        })
    }
}

impl fmt::Debug for Priorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Priorities").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_is_the_first() {
        let of = |text: &str| {
            let builder = Instance::builder("s").endpoint("grpc://h:1").metadata("tier", text);
            Priorities::metadata("tier").of(&builder.build().unwrap())
        };
        assert_eq!(["2", " 7 ", "-1", "x", "4294967296"].map(of), [2, 7, 0, 0, 0]);
    }
}
