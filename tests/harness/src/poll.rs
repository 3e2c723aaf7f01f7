//! Waiting for something that happens soon.

use std::{fmt::Display, panic::Location, time::Duration};

use tokio::time::{Instant, sleep, timeout_at};

/// Short enough not to slow a test down, long enough not to starve the server under test on a small machine.
const INTERVAL: Duration = Duration::from_millis(10);

/// How long a fact may take to become true, on a machine that is busy with other things.
pub const SOON: Duration = Duration::from_secs(20);

/// What one look of [`eventually`] yields: the awaited value, or a description of what was there instead.
pub trait Sight {
    /// The awaited value.
    type Value;

    /// Returns the value, or what was seen in its place.
    ///
    /// # Errors
    ///
    /// The description, when the value is not there yet.
    fn seen(self) -> Result<Self::Value, String>;
}

impl<T> Sight for Option<T> {
    type Value = T;

    fn seen(self) -> Result<T, String> {
        self.ok_or_else(|| "nothing".to_owned())
    }
}

impl<T, E: Display> Sight for Result<T, E> {
    type Value = T;

    fn seen(self) -> Result<T, String> {
        self.map_err(|instead| instead.to_string())
    }
}

impl Sight for bool {
    type Value = ();

    fn seen(self) -> Result<(), String> {
        if self { Ok(()) } else { Err("false".to_owned()) }
    }
}

/// Looks every 10 ms until `look` yields a value, and returns it.
///
/// `look` returns an `Option`, a `bool`, or a `Result` whose error says what it saw instead; an error is no failure, only "not
/// yet". It looks at least once, and a look that does not return is given up at the deadline.
/// Call it in the body of the test: with a closure that borrows, the compiler cannot prove that the future may be spawned.
///
/// # Panics
///
/// At the deadline, with `what`, the last sight and the place of the call: a test that waits in vain has failed.
#[track_caller]
pub fn eventually<S: Sight>(
    limit: Duration,
    what: &str,
    look: impl AsyncFnMut() -> S,
) -> impl Future<Output = S::Value> {
    // An async fn would report the place where it is polled, so the place is taken before the future exists.
    poll(Location::caller(), limit, what, look)
}

/// Waits until a fact holds, up to [`SOON`].
///
/// # Panics
///
/// As [`eventually`].
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) -> impl Future<Output = ()> {
    eventually(SOON, what, async move || holds())
}

#[allow(clippy::panic, reason = "this is how a test fails, and only tests call it")]
async fn poll<S: Sight>(
    caller: &Location<'_>,
    limit: Duration,
    what: &str,
    mut look: impl AsyncFnMut() -> S,
) -> S::Value {
    let deadline = Instant::now() + limit;
    let mut last = "no look returned in time".to_owned();
    loop {
        match timeout_at(deadline, look()).await.map(Sight::seen) {
            Ok(Ok(value)) => return value,
            Ok(Err(instead)) => last = instead,
            Err(_) => {
                panic!("{caller}: not within {limit:?}: {what}; last seen: {last} (the last look did not return)")
            }
        }
        if Instant::now() + INTERVAL > deadline {
            panic!("{caller}: not within {limit:?}: {what}; last seen: {last}");
        }
        sleep(INTERVAL).await;
    }
}

/// Looks every 10 ms for so long, at what must stay true meanwhile.
///
/// # Panics
///
/// As soon as it is not, with `what`.
pub async fn stays(duration: Duration, what: &str, mut look: impl FnMut() -> bool) {
    let end = Instant::now() + duration;
    while Instant::now() < end {
        assert!(look(), "it did not stay true that {what}");
        sleep(INTERVAL).await;
    }
}
