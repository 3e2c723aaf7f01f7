//! Who answers, and how often.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, fmt::Debug};

use crate::{SOON, eventually};

/// Calls that often, one after the other, and counts who answered; every call has to succeed.
pub async fn spread<E: Debug>(
    calls: usize,
    mut call: impl AsyncFnMut() -> Result<String, E>,
) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..calls {
        *counts.entry(call().await.unwrap()).or_insert(0) += 1;
    }
    counts
}

/// Makes that many calls, again and again, until each of these has answered some of them, and nobody else any; every call has to succeed.
pub async fn settle<E: Debug>(names: &[&str], calls: usize, mut call: impl AsyncFnMut() -> Result<String, E>) {
    eventually(SOON, &format!("answers of {names:?}"), async || {
        let counts = spread(calls, async || call().await).await;
        if counts.keys().eq(names) { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
}
