//! Reading records with plain requests, which cost the server less than its script.

use discovery_core::Result;
use redis::Value;
use tokio::sync::SemaphorePermit;

use super::Node;
use crate::notice::Id;
use crate::script::out_of_step;

/// Blocks of bytes that may be under way in answers on one connection, 4 MiB together: half of what a server keeps for a subscriber
/// that reads slowly, since notifications come on top.
const BLOCK: usize = 1024;
pub(super) const IN_FLIGHT: usize = 4 * 1024;

impl Node {
    /// The ids that changed after a revision, oldest first, and the revision of the change. Listing them needs no script, which would
    /// take three times as long.
    pub(crate) async fn changed(&self, stem: &str, after: u64, most: usize) -> Result<Vec<(Id, u64)>> {
        let mut read = redis::cmd("ZRANGEBYSCORE");
        read.arg(format!("{stem}:revisions")).arg(format!("({after}")).arg("+inf");
        read.arg("WITHSCORES").arg("LIMIT").arg(0).arg(most);
        let found: Vec<(Id, f64)> = self.ask(&read).await.map_err(|error| self.judge(error, "read", stem))?;
        // Versions are whole numbers far below 2^53, which a double holds exactly.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole, positive, below 2^53")]
        Ok(found.into_iter().map(|(id, revision)| (id, revision as u64)).collect())
    }

    /// The lengths of the values of some records; 0 for one that is not there. Many plain questions in one request are cheaper for the
    /// server than one script that asks them.
    pub(crate) async fn lengths(&self, stem: &str, ids: &[(Id, u64)]) -> Result<Vec<usize>> {
        if ids.is_empty() {
            return Ok(Vec::new()); // Which would be no request at all.
        }
        let mut questions = redis::Pipeline::with_capacity(ids.len());
        for (id, _) in ids {
            questions.cmd("STRLEN").arg(place(stem, id));
        }
        let mut connection = self.connection.clone();
        let answers = connection.send_packed_commands(&questions, 0, ids.len()).await;
        let answers = answers.map_err(|error| self.judge(error, "read", stem))?;
        if answers.len() != ids.len() {
            return Err(out_of_step("read", stem));
        }
        let length = |answer| match answer {
            Value::Int(length) => usize::try_from(length).map_err(|_| out_of_step("read", stem)),
            // What is no string is there all the same; reading it shows that it has no value.
            Value::ServerError(error) if error.code() == "WRONGTYPE" => Ok(0),
            Value::ServerError(error) => Err(self.judge(error.into(), "read", stem)),
            _ => Err(out_of_step("read", stem)),
        };
        answers.into_iter().map(length).collect()
    }

    /// Waits until so many bytes more may be under way.
    async fn room(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        let blocks = (bytes / BLOCK + 1).min(IN_FLIGHT);
        // The semaphore is never closed.
        self.room.acquire_many(u32::try_from(blocks).unwrap_or(u32::MAX)).await.ok()
    }

    /// Reads the values of some records, which weigh so much together. A plain request carries no nonce; one that is out of step shows
    /// by its length or its values.
    pub(crate) async fn values(&self, stem: &str, ids: &[&Id], weight: usize) -> Result<Vec<Option<Vec<u8>>>> {
        let _room = self.room(weight).await;
        let mut read = redis::cmd("MGET");
        for id in ids {
            read.arg(place(stem, id));
        }
        let values: Vec<Option<Vec<u8>>> = self.ask(&read).await.map_err(|error| self.judge(error, "read", stem))?;
        if values.len() != ids.len() {
            return Err(out_of_step("read", stem));
        }
        Ok(values)
    }
}

/// The key of a record.
fn place(stem: &str, id: &[u8]) -> Vec<u8> {
    [stem.as_bytes(), b"/", id].concat()
}
