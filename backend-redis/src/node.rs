//! One connection to one server: requests and notifications.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use discovery_core::{Error, ErrorKind, Result};
use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, RedisError, Script, Value};
use tokio::net::TcpStream;
use tokio::sync::{RwLock, Semaphore, SemaphorePermit};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::error::{classify, is_misdirected, is_unknown_script};
use crate::layout::channel;
use crate::notice::Id;
use crate::pushes::{Inbox, Pushes};
use crate::script::{Answer, TEXT, out_of_step};
use crate::settings::Way;
use crate::tls;

/// How long unsubscribing may take; what it leaves behind is unheard notifications until the connection ends.
const LEAVE_LIMIT: Duration = Duration::from_secs(3);

/// Blocks of bytes that may be under way in answers on one connection, 4 MiB together: half of what a server keeps for a subscriber
/// that reads slowly, since notifications come on top.
const BLOCK: usize = 1024;
const IN_FLIGHT: usize = 4 * 1024;

/// How changes are published and listened to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PubSub {
    /// To every subscriber of the server.
    Plain,
    /// To the subscribers of the channel's slot, on the server that has it.
    Sharded,
}

impl PubSub {
    fn commands(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Plain => ("PUBLISH", "SUBSCRIBE", "UNSUBSCRIBE"),
            Self::Sharded => ("SPUBLISH", "SSUBSCRIBE", "SUNSUBSCRIBE"),
        }
    }
}

/// A connection that has answered.
pub(crate) struct Node {
    pub(crate) host: String,
    connection: MultiplexedConnection,
    pushes: Arc<Pushes>,
    /// Whoever subscribes shares it, whoever unsubscribes has it alone: otherwise a watch that is closed could silence one that is
    /// opened at the same moment.
    gate: RwLock<()>,
    /// What is under way, in blocks. Fair, so a small set waits for a few requests of a large one and not for all.
    room: Semaphore,
    pubsub: PubSub,
    script: Script,
    /// Tells one question from another; only uniqueness counts, so any ordering does.
    nonce: AtomicU64,
    /// Why this connection must be left although it answers. Written by the first who notices.
    fault: OnceLock<Error>,
    /// The local address that the host is reached from.
    pub(crate) source: Option<IpAddr>,
    /// Owned, so that it ends with the connection.
    driver: AbortHandle,
}

impl Node {
    /// Dials a host and logs in.
    pub(crate) async fn open(host: &str, way: &Way, pubsub: PubSub) -> Result<Self> {
        let failed = |error: RedisError| classify(error, "connect to", host);
        let stream = TcpStream::connect(host).await.map_err(|error| failed(error.into()))?;
        // Requests are small and wait for their answers; Nagle's algorithm would hold them back.
        stream.set_nodelay(true).map_err(|error| failed(error.into()))?;
        let source = stream.local_addr().ok().map(|address| address.ip());
        let pushes = Arc::new(Pushes::default());
        let inlet = pushes.clone();
        let config = AsyncConnectionConfig::new()
            // Every request has the engine's deadline; the client's own, half a second, is too short for a large set.
            .set_response_timeout(None)
            .set_push_sender(move |push| {
                inlet.take(push);
                Ok::<(), ()>(())
            });
        let (connection, driver) = match &way.tls {
            None => start(MultiplexedConnection::new_with_config(&way.login, stream, config).await.map_err(failed)?),
            Some(files) => {
                let stream = tls::wrap(files, host, stream).await?;
                start(MultiplexedConnection::new_with_config(&way.login, stream, config).await.map_err(failed)?)
            }
        };
        let (nonce, fault, gate) = (AtomicU64::new(0), OnceLock::new(), RwLock::new(()));
        let (host, script, room) = (host.to_owned(), Script::new(TEXT), Semaphore::new(IN_FLIGHT));
        Ok(Self { host, connection, pushes, gate, room, pubsub, script, nonce, fault, source, driver })
    }

    /// Dials a host, logs in, and sees that it is a master ready for work.
    pub(crate) async fn ready(host: &str, way: &Way, pubsub: PubSub) -> Result<Self> {
        let node = Self::open(host, way, pubsub).await?;
        node.ping().await?;
        node.prepare().await?;
        Ok(node)
    }

    /// Brings the script to the server, which has to have loaded its data to take it.
    async fn prepare(&self) -> Result<()> {
        match self.ask::<Value>(redis::cmd("SCRIPT").arg("LOAD").arg(TEXT)).await {
            Ok(_) => Ok(()),
            Err(error) => match classify(error, "connect to", &self.host) {
                // Whoever may not load it may still call it by its text.
                error if error.kind() == ErrorKind::PermissionDenied => Ok(()),
                error => Err(error),
            },
        }
    }

    /// Asks for an answer, which a server that is not the master any more does not give. Needs no right, unlike PING.
    pub(crate) async fn ping(&self) -> Result<()> {
        if let Some(fault) = self.fault.get() {
            return Err(fault.clone());
        }
        let answer: Value =
            self.ask(&redis::cmd("HELLO")).await.map_err(|error| classify(error, "reach", &self.host))?;
        let Value::Map(fields) = answer else {
            return Err(out_of_step("reach", &self.host));
        };
        let role = fields.into_iter().find_map(|(name, value)| {
            let is_role = String::from_redis_value(name).is_ok_and(|name| name == "role");
            is_role.then(|| String::from_redis_value(value).unwrap_or_default())
        });
        match role.as_deref() {
            Some("master") => Ok(()),
            role => Err(Error::new(
                ErrorKind::Unavailable,
                "reach",
                &*self.host,
                format!("the server is not the master but a {}", role.unwrap_or("stranger")),
            )),
        }
    }

    /// Calls the script. `arguments` adds what belongs to the verb.
    pub(crate) async fn call(
        &self,
        verb: &'static str,
        stem: &str,
        arguments: impl Fn(&mut Cmd) + Send + Sync,
    ) -> Result<Answer> {
        let nonce = self.nonce.fetch_add(1, Ordering::Relaxed);
        let mut result = self.evaluate("EVALSHA", self.script.get_hash(), nonce, verb, stem, &arguments).await;
        if result.as_ref().is_err_and(is_unknown_script) {
            result = self.evaluate("EVAL", TEXT, nonce, verb, stem, &arguments).await;
        }
        let value = result.map_err(|error| self.judge(error, verb, stem))?;
        Answer::read(value, nonce, verb, stem).inspect_err(|error| {
            let _ = self.fault.set(error.clone());
        })
    }

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

    /// Classifies a failure, and remembers one that speaks against the connection itself.
    fn judge(&self, error: RedisError, operation: &'static str, stem: &str) -> Error {
        let misdirected = is_misdirected(&error);
        let error = classify(error, operation, stem);
        if misdirected {
            let _ = self.fault.set(error.clone());
        }
        error
    }

    async fn evaluate(
        &self,
        command: &str,
        script: &str,
        nonce: u64,
        verb: &str,
        stem: &str,
        arguments: &(impl Fn(&mut Cmd) + Send + Sync),
    ) -> Result<Value, RedisError> {
        let mut call = redis::cmd(command);
        call.arg(script).arg(1).arg(stem).arg(verb).arg(nonce).arg(self.pubsub.commands().0);
        arguments(&mut call);
        self.ask(&call).await
    }

    /// Listens to the changes of a scope, and returns once the server has confirmed it.
    pub(crate) async fn subscribe(self: &Arc<Self>, stem: &str) -> Result<Subscription> {
        let _shared = self.gate.read().await;
        let channel = channel(stem);
        let Some(inbox) = self.pushes.listen(&channel) else {
            return Err(Error::new(ErrorKind::Unavailable, "watch", stem, "the connection broke"));
        };
        // Made first, so that a call that is given up leaves the channel.
        let subscription = Subscription { node: self.clone(), inbox };
        let (_, subscribe, _) = self.pubsub.commands();
        self.ask::<Value>(redis::cmd(subscribe).arg(channel)).await.map_err(|error| classify(error, "watch", stem))?;
        Ok(subscription)
    }

    /// Unsubscribes from what nobody listens to any more.
    async fn leave(&self) {
        let _alone = self.gate.write().await;
        let (_, _, unsubscribe) = self.pubsub.commands();
        let left = self.pushes.take_left();
        // A failure means that the connection is gone, and the subscriptions with it.
        join_all(left.iter().map(async |channel| {
            let _ = self.ask::<Value>(redis::cmd(unsubscribe).arg(channel)).await;
        }))
        .await;
    }

    pub(crate) async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, RedisError> {
        command.query_async(&mut self.connection.clone()).await
    }
}

/// The key of a record.
fn place(stem: &str, id: &[u8]) -> Vec<u8> {
    [stem.as_bytes(), b"/", id].concat()
}

/// Lets a task drive the connection.
fn start(
    (connection, driver): (MultiplexedConnection, impl Future<Output = ()> + Send + 'static),
) -> (MultiplexedConnection, AbortHandle) {
    (connection, tokio::spawn(driver).abort_handle())
}

impl Drop for Node {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// The changes of one scope; dropping it ends them.
pub(crate) struct Subscription {
    node: Arc<Node>,
    pub(crate) inbox: Inbox,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if !self.inbox.close() {
            return; // Somebody newer listens there.
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let node = Arc::downgrade(&self.node);
        runtime.spawn(async move {
            if let Some(node) = node.upgrade() {
                // A server that does not answer must not keep the connection open.
                let _ = timeout(LEAVE_LIMIT, node.leave()).await;
            }
        });
    }
}
