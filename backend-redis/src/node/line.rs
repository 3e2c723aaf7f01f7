//! One connection: dialled, logged in, and driven until it is dropped.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use discovery_core::Result;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, Pipeline, RedisError};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

use super::progress::{Observed, Progress};
use crate::error::classify;
use crate::pushes::Pushes;
use crate::settings::Way;
use crate::tls;

/// Bytes of answers to the reading of sets that are taken before one is understood; records are asked for by the mebibyte.
const VAST: usize = 64 * 1024 * 1024;

pub(super) struct Line {
    connection: MultiplexedConnection,
    progress: Arc<Progress>,
    /// Set once nothing more is to be asked.
    ended: AtomicBool,
    /// The local address that the host is reached from.
    pub(super) source: Option<IpAddr>,
    /// Owned, so that it ends with the connection.
    driver: AbortHandle,
}

impl Line {
    /// Dials a host and logs in. Notifications go to `pushes`; without them it is for reading sets, and no answer may be vast.
    pub(super) async fn dial(host: &str, way: &Way, pushes: Option<Arc<Pushes>>) -> Result<Self> {
        let failed = |error: RedisError| classify(error, "connect to", host);
        let login = way.login()?;
        let stream = TcpStream::connect(host).await.map_err(|error| failed(error.into()))?;
        // Requests are small and wait for their answers; Nagle's algorithm would hold them back.
        stream.set_nodelay(true).map_err(|error| failed(error.into()))?;
        let source = stream.local_addr().ok().map(|address| address.ip());
        // Every request has a deadline of ours; the client's own, half a second, is too short for a large set.
        let mut config = AsyncConnectionConfig::new().set_response_timeout(None);
        let progress = Progress::new(if pushes.is_some() { usize::MAX } else { VAST });
        if let Some(pushes) = pushes {
            config = config.set_push_sender(move |push| {
                pushes.take(push);
                Ok::<(), ()>(())
            });
        }
        let stream = Observed::new(stream, progress.clone());
        let (connection, driver) = match &way.tls {
            None => start(MultiplexedConnection::new_with_config(&login, stream, config).await.map_err(failed)?),
            Some(files) => {
                let stream = tls::wrap(files, host, stream).await?;
                start(MultiplexedConnection::new_with_config(&login, stream, config).await.map_err(failed)?)
            }
        };
        Ok(Self { connection, progress, ended: AtomicBool::new(false), source, driver })
    }

    pub(super) async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, RedisError> {
        command.query_async(&mut self.connection.clone()).await
    }

    /// Asks several questions at once.
    pub(super) async fn ask_all<T: FromRedisValue>(&self, commands: &Pipeline) -> Result<T, RedisError> {
        commands.query_async(&mut self.connection.clone()).await
    }

    /// Notes that an answer was understood.
    pub(super) fn understood(&self) {
        self.progress.understood();
    }

    /// Whether it was broken off since an answer was vast.
    pub(super) fn is_flooded(&self) -> bool {
        self.progress.is_flooded()
    }

    /// Waits for what is asked here until nothing at all has come for so long; `None` then.
    pub(super) async fn within<T>(&self, silence: Duration, answer: impl Future<Output = T>) -> Option<T> {
        self.progress.within(silence, answer).await
    }

    /// Ends the connection: what waits on it fails.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        self.driver.abort();
    }

    /// Whether it was ended, here or at the other side.
    pub(super) fn is_over(&self) -> bool {
        self.ended.load(Ordering::Relaxed) || self.driver.is_finished()
    }
}

/// Lets a task drive the connection.
fn start(
    (connection, driver): (MultiplexedConnection, impl Future<Output = ()> + Send + 'static),
) -> (MultiplexedConnection, AbortHandle) {
    (connection, tokio::spawn(driver).abort_handle())
}

impl Drop for Line {
    fn drop(&mut self) {
        self.end();
    }
}
