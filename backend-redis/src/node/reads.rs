//! Reading records with plain requests, which cost the server less than its script.
//!
//! Sets are read on a connection of their own. A server cuts off a subscriber for whom it has to keep much, 8 MB for a minute or 32 MB
//! at once (`client-output-buffer-limit pubsub`), and what a record weighs is not known before it is read.

use std::sync::Arc;
use std::time::Duration;

use discovery_core::{Error, ErrorKind, Result};
use redis::{Cmd, FromRedisValue};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::Node;
use super::line::Line;
use crate::notice::Id;
use crate::script::out_of_step;

/// The connection that sets are read on: dialled when one is read, and again when it broke.
#[derive(Default)]
pub(super) struct Reader(Mutex<Option<Arc<Line>>>);

impl Reader {
    /// Ends what is being read; what is being dialled ends by its deadline.
    pub(super) fn end(&self) {
        if let Ok(line) = self.0.try_lock() {
            line.iter().for_each(|line| line.end());
        }
    }
}

/// Some of the ids of a scope, in the order of their last changes.
pub(crate) struct Listing {
    /// The version of the scope when they were listed.
    pub(crate) version: u64,
    pub(crate) ids: Vec<Id>,
    /// The version behind which the next ones begin; `None` behind the last.
    pub(crate) next: Option<u64>,
}

impl Node {
    /// The ids that changed after a revision, oldest first, and the revision of the change. Listing them needs no script, which would
    /// take three times as long.
    pub(crate) async fn changed(&self, stem: &str, after: u64, most: usize) -> Result<Vec<(Id, u64)>> {
        let mut read = by_revision(stem, after);
        read.arg("WITHSCORES").arg("LIMIT").arg(0).arg(most);
        let found: Vec<(Id, f64)> = self.ask(&read).await.map_err(|error| self.judge(error, "read", stem))?;
        Ok(found.into_iter().map(|(id, revision)| (id, whole(revision))).collect())
    }

    /// The ids that changed after a revision, without their revisions, which would take the server ten times as long.
    ///
    /// What changes meanwhile moves to the end. So whatever was up to the next page's beginning when that was asked for is listed here,
    /// unless it comes later.
    pub(crate) async fn list(&self, stem: &str, after: u64, most: usize, patience: Duration) -> Result<Listing> {
        let line = self.reader(stem, patience).await?;
        let (mut version, mut last, mut ids) = (redis::cmd("GET"), by_revision(stem, after), by_revision(stem, after));
        version.arg(format!("{stem}:version"));
        last.arg("WITHSCORES").arg("LIMIT").arg(most.saturating_sub(1)).arg(1);
        ids.arg("LIMIT").arg(0).arg(most);
        // Sent in this order, and answered in it.
        let (version, last, ids): (Option<u64>, Vec<(Id, f64)>, _) = tokio::try_join!(
            self.read(&line, stem, &version, patience),
            self.read(&line, stem, &last, patience),
            self.read(&line, stem, &ids, patience),
        )?;
        let next = last.first().map(|(_, revision)| whole(*revision));
        Ok(Listing { version: version.unwrap_or(0), ids, next })
    }

    /// Reads the values of some records; `None` for one that is not there, or is no string. A plain request carries no nonce; one that is
    /// out of step shows by its length or its values.
    pub(crate) async fn values(&self, stem: &str, ids: &[Id], patience: Duration) -> Result<Vec<Option<Vec<u8>>>> {
        let line = self.reader(stem, patience).await?;
        let mut read = redis::cmd("MGET");
        let mut key = format!("{stem}/").into_bytes();
        let stem_length = key.len();
        for id in ids {
            key.truncate(stem_length);
            key.extend_from_slice(id);
            read.arg(&key);
        }
        let values: Vec<_> = self.read(&line, stem, &read, patience).await?;
        if values.len() == ids.len() { Ok(values) } else { Err(out_of_step("read", stem)) }
    }

    /// The connection for reading.
    async fn reader(&self, stem: &str, patience: Duration) -> Result<Arc<Line>> {
        let mut reader = self.reader.0.lock().await;
        if let Some(line) = &*reader {
            return Ok(line.clone());
        }
        let dialled = timeout(patience, Line::dial(&self.host, &self.way, None)).await;
        let line = Arc::new(dialled.unwrap_or_else(|_| Err(silent(stem, patience)))?);
        *reader = Some(line.clone());
        Ok(line)
    }

    async fn read<T: FromRedisValue>(&self, line: &Arc<Line>, stem: &str, read: &Cmd, patience: Duration) -> Result<T> {
        let error = match timeout(patience, line.ask(read)).await {
            Ok(Ok(answer)) => return Ok(answer),
            // What the server says leaves the connection as it is.
            Ok(Err(error)) if error.code().is_some() => return Err(self.judge(error, "read", stem)),
            Ok(Err(error)) => self.judge(error, "read", stem),
            Err(_) => silent(stem, patience),
        };
        let mut reader = self.reader.0.lock().await;
        if reader.as_ref().is_some_and(|current| Arc::ptr_eq(current, line)) {
            *reader = None;
        }
        line.end();
        Err(error)
    }
}

fn by_revision(stem: &str, after: u64) -> Cmd {
    let mut read = redis::cmd("ZRANGEBYSCORE");
    read.arg(format!("{stem}:revisions")).arg(format!("({after}")).arg("+inf");
    read
}

/// Versions are whole numbers far below 2^53, which a double holds exactly.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole, positive, below 2^53")]
fn whole(revision: f64) -> u64 {
    revision as u64
}

fn silent(stem: &str, patience: Duration) -> Error {
    Error::new(ErrorKind::DeadlineExceeded, "read", stem, format!("no answer within {patience:?}"))
}
