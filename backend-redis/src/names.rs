//! The list of services: which of them have records.
//!
//! In a Cluster it lies in another slot than the services, so no script changes both. Whoever writes a service's first record enlists
//! it, whoever removes the last delists it, and what a crash leaves undone between the two is found by looking: each entry has a
//! time at which whoever follows the list asks the service itself.

use std::time::Duration;

use discovery_core::{Error, ErrorKind, Result};
use futures_util::future::join_all;
use tokio::time::timeout;

use crate::layout::Layout;
use crate::live::Live;
use crate::load::{Summary, sweep_segment};

/// How long a service is believed to have records if none of them ends by itself.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// A service that had records at a version, and how long until that has to be looked at again.
pub(crate) struct Seen {
    pub(crate) segment: String,
    pub(crate) version: u64,
    pub(crate) wait: Duration,
}

/// Enters services into the list. Entering one twice changes nothing.
pub(crate) async fn enlist(live: &Live, layout: &Layout, seen: &[Seen]) -> Result<()> {
    enter("enlist", live, layout, seen).await
}

async fn enter(verb: &'static str, live: &Live, layout: &Layout, seen: &[Seen]) -> Result<()> {
    for some in seen.chunks(500) {
        let call = live.call(verb, layout.names_stem(), |call| {
            for Seen { segment, version, wait } in some {
                call.arg(segment).arg(version).arg(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
            }
        });
        beside(live, call).await?;
    }
    Ok(())
}

/// Runs a request that is not what its caller is about, so that a silent server of the list holds up no service of another.
async fn beside<T>(live: &Live, request: impl Future<Output = Result<T>>) -> Result<T> {
    timeout(live.glance, request).await.unwrap_or_else(|_| {
        let why = format!("no answer within {:?}", live.glance);
        Err(Error::new(ErrorKind::DeadlineExceeded, "keep", "the list of services", why))
    })
}

/// Takes a service without records from the list, unless somebody saw records at a later version.
///
/// A failure is left to those who follow the list: the service itself has changed already.
pub(crate) async fn delist(live: &Live, layout: &Layout, segment: &str, version: u64) {
    let call = live.call("delist", layout.names_stem(), |call| {
        call.arg(segment).arg(version);
    });
    if let Err(error) = beside(live, call).await {
        tracing::debug!(service = segment, %error, "could not take a service from the list; its readers will");
    }
}

/// Asks the services whose time has come whether they still have records, and summarises the list.
pub(crate) async fn look_after(live: &Live, layout: &Layout) -> Result<Summary> {
    loop {
        let mut answer = live.call("due", layout.names_stem(), |_| {}).await?;
        let summary = Summary::read(&mut answer)?;
        let mut due = Vec::with_capacity(answer.len());
        while !answer.is_empty() {
            // A name that is no text was entered by hand; it leads to no service and is taken for gone.
            due.push(String::from_utf8_lossy(&answer.bytes()?).into_owned());
        }
        if due.is_empty() {
            return Ok(summary);
        }
        let swept = join_all(due.iter().map(|segment| beside(live, sweep_segment(live, layout, segment)))).await;
        let mut seen = Vec::new();
        for (segment, swept) in due.into_iter().zip(swept) {
            match swept {
                Ok((service, _)) if service.count == 0 => delist(live, layout, &segment, service.version).await,
                Ok((service, _)) => {
                    let wait = service.last.unwrap_or(LOOK_AGAIN);
                    seen.push(Seen { segment, version: service.version, wait });
                }
                // Its server does not answer; the list looks again in a second.
                Err(error) => tracing::debug!(service = segment, %error, "could not look at a service"),
            }
        }
        enter("looked", live, layout, &seen).await?;
    }
}
