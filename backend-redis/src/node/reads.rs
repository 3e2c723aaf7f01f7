//! Reading records with plain requests, which cost the server less than its script.
//!
//! Sets are read on a connection of their own. A server cuts off a subscriber for whom it has to keep much, 8 MB for a minute or 32 MB
//! at once (`client-output-buffer-limit pubsub`), and what a record weighs is not known before it is read.

use std::sync::Arc;
use std::time::Duration;

use discovery_core::{Backoff, Error, ErrorKind, Result};
use redis::{Cmd, FromRedisValue, RedisError};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::line::Line;
use super::{Node, role};
use crate::MAX_RECORD;
use crate::notice::Id;
use crate::script::{Answer, out_of_step};

/// How long reading may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// How long nothing may come while an answer is awaited, and how long dialling may take.
    pub(crate) silence: Duration,
    /// The longest wait between two dials that fail.
    pub(crate) backoff: Duration,
}

/// How values are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Care {
    /// Many at once, whatever they weigh.
    None,
    /// Each no further than a record may be long, which costs the server half as much again.
    Bounded,
}

/// Records in one request that is read with care: mebibytes at the most.
const BOUNDED: usize = 8;

/// The connection that sets are read on: dialled when one is read, and again when it broke. All who read share its failures, too.
#[derive(Default)]
pub(super) struct Reader(Mutex<State>);

#[derive(Default)]
struct State {
    line: Option<Arc<Line>>,
    backoff: Option<Backoff>,
    /// Why there is none, and when it may be dialled again.
    trouble: Option<(Error, Instant)>,
}

impl State {
    /// Gives up the connection, unless it is another one by now.
    fn fail(&mut self, line: Option<&Arc<Line>>, cause: &Error, patience: Patience) {
        let is_current = match (line, &self.line) {
            (Some(line), Some(current)) => Arc::ptr_eq(line, current),
            (line, current) => line.is_none() && current.is_none(),
        };
        if is_current {
            self.line = None;
            let backoff = self.backoff.get_or_insert_with(|| Backoff::new(patience.backoff));
            self.trouble = Some((cause.clone(), Instant::now() + backoff.next(cause.is_retryable())));
        }
    }
}

impl Reader {
    /// Ends what is being read; what is being dialled ends by its deadline.
    pub(super) fn end(&self) {
        if let Ok(state) = self.0.try_lock() {
            state.line.iter().for_each(|line| line.end());
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

    /// Begins to read what is under a stem.
    pub(crate) async fn reading<'a>(&'a self, stem: &'a str, patience: Patience, care: Care) -> Result<Reading<'a>> {
        let late = |_| silent(stem, patience.silence);
        // Whoever dials is done by then.
        let mut state = timeout(patience.silence, self.reader.0.lock()).await.map_err(late)?;
        if let Some(line) = state.line.as_ref().filter(|line| !line.is_over()) {
            return Ok(Reading { node: self, line: line.clone(), stem, patience, care });
        }
        if let Some((cause, again)) = &state.trouble
            && *again > Instant::now()
        {
            return Err(cause.clone());
        }
        state.line = None;
        let dial = async {
            let line = Line::dial(&self.host, &self.way, None).await?;
            // Where several servers stand behind one address, it may be another one.
            role::check(&line, &self.host).await?;
            Ok(Arc::new(line))
        };
        let dialled = timeout(patience.silence, dial).await.map_err(late).and_then(|dialled| dialled);
        let line = dialled.inspect_err(|cause| state.fail(None, cause, patience))?;
        state.line = Some(line.clone());
        Ok(Reading { node: self, line, stem, patience, care })
    }
}

/// One reading of what is under a stem, on one connection.
pub(crate) struct Reading<'a> {
    node: &'a Node,
    line: Arc<Line>,
    stem: &'a str,
    patience: Patience,
    care: Care,
}

impl Reading<'_> {
    /// How many records may be asked for in one request: with care, so few that all requests under way cannot be a flood.
    pub(crate) fn most_at_once(&self) -> usize {
        match self.care {
            Care::None => usize::MAX,
            Care::Bounded => BOUNDED,
        }
    }

    /// The ids that changed after a revision, without their revisions, which would take the server ten times as long.
    ///
    /// What changes meanwhile moves to the end. So whatever was up to the next page's beginning when that was asked for is listed here,
    /// unless it comes later.
    pub(crate) async fn list(&self, after: u64, most: usize) -> Result<Listing> {
        let (mut last, mut ids) = (by_revision(self.stem, after), by_revision(self.stem, after));
        last.arg("WITHSCORES").arg("LIMIT").arg(most.saturating_sub(1)).arg(1);
        ids.arg("LIMIT").arg(0).arg(most);
        let mut version = redis::cmd("GET");
        version.arg(format!("{}:version", self.stem));
        // Sent in this order, and answered in it.
        let (version, last, ids): (Option<u64>, Vec<(Id, f64)>, _) =
            tokio::try_join!(self.ask(&version), self.ask(&last), self.ask(&ids))?;
        let next = last.first().map(|(_, revision)| whole(*revision));
        Ok(Listing { version: version.unwrap_or(0), ids, next })
    }

    /// Reads the values of some records; `None` for one that is not there, or is no string.
    pub(crate) async fn values(&self, ids: &[Id]) -> Result<Vec<Option<Vec<u8>>>> {
        let (mut read, mut ranges) = (redis::cmd("MGET"), redis::pipe());
        ranges.ignore_errors();
        let mut key = format!("{}/", self.stem).into_bytes();
        let stem_length = key.len();
        for id in ids {
            key.truncate(stem_length);
            key.extend_from_slice(id);
            match self.care {
                Care::None => _ = read.arg(&key),
                // Just enough to show that it is too long.
                Care::Bounded => _ = ranges.cmd("GETRANGE").arg(&key).arg(0).arg(MAX_RECORD),
            }
        }
        let values: Vec<Option<Vec<u8>>> = match self.care {
            Care::None => self.ask(&read).await?,
            Care::Bounded => {
                let answers: Vec<Result<Vec<u8>, RedisError>> = self.answer(self.line.ask_all(&ranges)).await?;
                let value = |answer: Result<Vec<u8>, RedisError>| match answer {
                    Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
                    Err(error) if error.code() == Some("WRONGTYPE") => Ok(None),
                    Err(error) => Err(self.node.judge(error, "read", self.stem)),
                };
                answers.into_iter().map(value).collect::<Result<_>>()?
            }
        };
        if values.len() == ids.len() {
            return Ok(values);
        }
        let error = out_of_step("read", self.stem);
        self.give_up(&error).await;
        Err(error)
    }

    /// Ends a reading, and answers the version. Plain requests carry no nonce; this one does, so if bytes were lost before it shows here.
    pub(crate) async fn finish(&self) -> Result<u64> {
        let verb = "version";
        let call = self.node.call_on(&self.line, verb, self.stem, |_| {});
        let answer = self.line.within(self.patience.silence, call).await;
        let version = answer.unwrap_or_else(|| Err(silent(self.stem, self.patience.silence)));
        let version = version.and_then(|(value, nonce)| Answer::read(value, nonce, verb, self.stem)?.count());
        match &version {
            Ok(_) => {
                let mut state = self.node.reader.0.lock().await;
                (state.backoff, state.trouble) = (None, None);
            }
            Err(error) => self.give_up(error).await,
        }
        version
    }

    /// Leaves the connection, since what came on it cannot be believed.
    pub(crate) async fn give_up(&self, cause: &Error) {
        self.node.reader.0.lock().await.fail(Some(&self.line), cause, self.patience);
        self.line.end();
    }

    async fn ask<T: FromRedisValue>(&self, question: &Cmd) -> Result<T> {
        self.answer(self.line.ask(question)).await
    }

    async fn answer<T>(&self, asked: impl Future<Output = Result<T, RedisError>>) -> Result<T> {
        let error = match self.line.within(self.patience.silence, asked).await {
            Some(Ok(answer)) => {
                self.line.understood();
                return Ok(answer);
            }
            // The connection itself is as good as before, so the next one is dialled at once.
            Some(Err(_)) if self.line.is_flooded() => {
                self.line.end();
                let why = "an answer is far larger than records may be";
                return Err(Error::new(ErrorKind::TooLarge, "read", self.stem, why));
            }
            // What the server says leaves the connection as it is.
            Some(Err(error)) if error.code().is_some() => return Err(self.node.judge(error, "read", self.stem)),
            Some(Err(error)) => self.node.judge(error, "read", self.stem),
            None => silent(self.stem, self.patience.silence),
        };
        self.give_up(&error).await;
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

fn silent(stem: &str, silence: Duration) -> Error {
    Error::new(ErrorKind::DeadlineExceeded, "read", stem, format!("nothing came for {silence:?}"))
}
