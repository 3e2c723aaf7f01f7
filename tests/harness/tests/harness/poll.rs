//! `eventually` waits no longer than it must, and explains itself.

use std::{
    future::pending,
    time::{Duration, Instant},
};

use discovery_harness::eventually;

/// Returns the message with which the call panics.
async fn panic_message(call: impl Future<Output = ()> + Send + 'static) -> String {
    let payload = tokio::spawn(call).await.err().and_then(|error| error.try_into_panic().ok());
    payload.and_then(|payload| payload.downcast::<String>().ok()).map_or_else(String::new, |message| *message)
}

#[tokio::test]
async fn returns_the_first_value() {
    let mut looks = 0;
    let start = Instant::now();
    let third = eventually(Duration::from_secs(5), "the third look", async || {
        looks += 1;
        (looks == 3).then_some(looks)
    })
    .await;
    assert_eq!(third, 3);
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[tokio::test]
async fn says_what_was_seen_last_and_where_it_was_called() {
    let message = panic_message(async {
        eventually(Duration::from_millis(30), "all three", async || Err::<(), _>("only [A, C]")).await;
    })
    .await;
    for part in ["all three", "only [A, C]", "30ms", "poll.rs"] {
        assert!(message.contains(part), "{part} is not in {message}");
    }
}

#[tokio::test]
async fn a_look_that_hangs_ends_at_the_deadline() {
    let message = panic_message(async {
        eventually(Duration::from_millis(30), "an answer", async || pending::<Option<()>>().await).await;
    })
    .await;
    assert!(message.contains("an answer") && message.contains("did not return"), "{message}");
}
