//! One server: a connection for requests and notifications, and one for reading sets.

mod line;
mod progress;
mod reads;
pub(crate) mod role;
mod subscription;

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use discovery_core::{Error, ErrorKind, Result};
use redis::{Cmd, FromRedisValue, RedisError, Script, Value};
use tokio::sync::RwLock;

use crate::error::{Elsewhere, classify, elsewhere, is_unknown_script, needs_cluster};
use crate::pushes::Pushes;
use crate::script::{Answer, TEXT};
use crate::settings::Way;

use line::Line;
use reads::Reader;
pub(crate) use reads::{Care, Listing, Patience, Reading};
pub(crate) use subscription::{PubSub, Subscription};

/// Why the map of the Cluster may be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// The server says that another one has a slot.
    Moved,
    /// The server says that the Cluster is down, or that it is no master.
    Down,
}

/// A server that has answered.
pub(crate) struct Node {
    pub(crate) host: String,
    way: Arc<Way>,
    line: Line,
    reader: Reader,
    pushes: Arc<Pushes>,
    /// Whoever subscribes shares it, whoever unsubscribes has it alone: otherwise a watch that is closed could silence one that is
    /// opened at the same moment.
    gate: RwLock<()>,
    pubsub: PubSub,
    script: Script,
    /// Tells one question from another; only uniqueness counts, so any ordering does.
    nonce: AtomicU64,
    /// Why this connection must be left although it answers. Written by the first who notices.
    fault: OnceLock<Error>,
    /// Why the Cluster's map may be wrong. Written by requests, and by whoever has read the map.
    doubt: Mutex<Option<Doubt>>,
}

impl Node {
    /// Dials a host and logs in.
    pub(crate) async fn open(host: &str, way: &Arc<Way>, pubsub: PubSub) -> Result<Self> {
        let pushes = Arc::new(Pushes::default());
        let line = Line::dial(host, way, Some(pushes.clone())).await?;
        Ok(Self {
            host: host.to_owned(),
            way: way.clone(),
            line,
            reader: Reader::default(),
            pushes,
            gate: RwLock::new(()),
            pubsub,
            script: Script::new(TEXT),
            nonce: AtomicU64::new(0),
            fault: OnceLock::new(),
            doubt: Mutex::default(),
        })
    }

    /// Dials a host, logs in, and sees that it is a master ready for work.
    pub(crate) async fn ready(host: &str, way: &Arc<Way>, pubsub: PubSub) -> Result<Self> {
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

    /// Asks for an answer, which a server that is not the master any more does not give.
    pub(crate) async fn ping(&self) -> Result<()> {
        match self.fault.get() {
            Some(fault) => Err(fault.clone()),
            None => role::check(&self.line, &self.host).await,
        }
    }

    /// Calls the script. `arguments` adds what belongs to the verb.
    pub(crate) async fn call(
        &self,
        verb: &'static str,
        stem: &str,
        arguments: impl Fn(&mut Cmd) + Send + Sync,
    ) -> Result<Answer> {
        let (value, nonce) = self.call_on(&self.line, verb, stem, arguments).await?;
        Answer::read(value, nonce, verb, stem).inspect_err(|error| {
            let _ = self.fault.set(error.clone());
        })
    }

    /// Calls the script on one of the connections; answers what it said and the nonce that it should begin with.
    async fn call_on(
        &self,
        line: &Line,
        verb: &'static str,
        stem: &str,
        arguments: impl Fn(&mut Cmd) + Send + Sync,
    ) -> Result<(Value, u64)> {
        let nonce = self.nonce.fetch_add(1, Ordering::Relaxed);
        let question = |command: &str, script: &str| {
            let mut call = redis::cmd(command);
            call.arg(script).arg(1).arg(stem).arg(verb).arg(nonce).arg(self.pubsub.commands().0);
            arguments(&mut call);
            call
        };
        let mut result = line.ask(&question("EVALSHA", self.script.get_hash())).await;
        if result.as_ref().is_err_and(is_unknown_script) {
            result = line.ask(&question("EVAL", TEXT)).await;
        }
        Ok((result.map_err(|error| self.judge(error, verb, stem))?, nonce))
    }

    /// Classifies a failure, and remembers one that speaks against the connection itself or, in a Cluster, against the map.
    fn judge(&self, error: RedisError, operation: &'static str, stem: &str) -> Error {
        let elsewhere = elsewhere(&error);
        let error = match (self.pubsub, elsewhere) {
            (PubSub::Plain, Some(Elsewhere::Moved)) => needs_cluster(error, operation, stem),
            _ => classify(error, operation, stem),
        };
        match (self.pubsub, elsewhere) {
            (PubSub::Plain, Some(_)) => _ = self.fault.set(error.clone()),
            (PubSub::Sharded, Some(Elsewhere::Moved)) => *self.lock_doubt() = Some(Doubt::Moved),
            (PubSub::Sharded, Some(Elsewhere::NoMaster)) => *self.lock_doubt() = Some(Doubt::Down),
            (_, None) => {}
        }
        error
    }

    pub(crate) fn doubt(&self) -> Option<Doubt> {
        *self.lock_doubt()
    }

    /// Takes the doubt back, since the map was read anew.
    pub(crate) fn trust(&self) {
        *self.lock_doubt() = None;
    }

    /// The local address that the host is reached from.
    pub(crate) fn source(&self) -> Option<IpAddr> {
        self.line.source
    }

    fn lock_doubt(&self) -> std::sync::MutexGuard<'_, Option<Doubt>> {
        self.doubt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the connection: what waits on it fails, and what listens on it hears that continuity is lost.
    pub(crate) fn end(&self) {
        self.line.end();
        self.reader.end();
        self.pushes.end();
    }

    pub(crate) async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, RedisError> {
        self.line.ask(command).await
    }
}
