//! The network before one handle.

use std::{net::SocketAddr, time::Duration};

use async_trait::async_trait;
use discovery_core::conformance::Link;

use crate::Proxy;

/// A proxy as the suite's [`Link`].
#[derive(Debug)]
pub struct Wire(
    /// For what a link cannot do.
    pub Proxy,
);

impl Wire {
    /// Starts a proxy before a server.
    pub async fn to(server: SocketAddr) -> Self {
        Self(Proxy::start(server).await.expect("a proxy"))
    }
}

#[async_trait]
impl Link for Wire {
    async fn pass(&self) {
        self.0.pass().await.expect("a passing proxy");
    }

    async fn cut(&self) {
        // Attempts have to be counted, so they are accepted and reset.
        self.0.cut_counting().await.expect("a cut proxy");
    }

    async fn freeze(&self) {
        self.0.freeze_open().await.expect("a frozen proxy");
    }

    async fn swallow_replies(&self) {
        self.0.swallow_replies().await.expect("a swallowing proxy");
    }

    async fn delay(&self, delay: Duration) {
        self.0.delay(delay).await.expect("a slow proxy");
    }

    fn connects(&self) -> u64 {
        self.0.connects()
    }

    fn open(&self) -> usize {
        self.0.open()
    }

    fn received(&self) -> u64 {
        self.0.bytes_down()
    }
}
