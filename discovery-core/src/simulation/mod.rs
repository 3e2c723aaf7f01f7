//! A store that lies, simulated: the real engine under every fault that a registry has, on paused time and from a seed.
//!
//! A [`Schedule`] says what users do and what goes wrong. [`run`] plays it: several handles of the engine over one simulated store, of which
//! everything that it ever held is known. While it runs, each request and each set is checked against the contracts; at its end the
//! faults stop, [the documented bound](Schedule::settles_within) passes, and every watch has to show what the store has, which has to be the
//! living registrations.
//!
//! **What a client cannot know** is not held against it. A full set from the past is believed, as it looks the same as that of a store which
//! was restored: sets may go back then, until reconciliation finds the difference. A store that is restored behind a proxy is known by its
//! revision, so revisions must not catch up before it is asked. A notification that is lost is missed until the next reconciliation.
//!
//! The same seed leads to the same [`Report::hash`]. What tokio draws is the order in which it polls the tasks that one event woke, and
//! nothing here depends on it; what core draws comes from `fastrand`, which is seeded for the thread.

mod cast;
mod client;
mod lies;
mod play;
mod random;
mod schedule;
mod trace;
mod truth;
mod verdict;
mod witness;
mod world;

pub use lies::{Denial, Lag, Lossy, Wire};
pub use play::{Report, run};
pub use schedule::{Schedule, Step};
pub use trace::Keep;
