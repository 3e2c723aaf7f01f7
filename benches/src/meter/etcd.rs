//! etcd's metrics.

use std::net::SocketAddr;

use super::Reading;
use crate::Result;

/// Every message from a client: those of streams, and one for each other request.
const MESSAGES: &str = "grpc_server_msg_received_total{";
const REVISION: &str = "etcd_debugging_mvcc_current_revision ";

pub(crate) struct Metrics {
    client: reqwest::Client,
    url: String,
}

impl Metrics {
    pub(super) fn new(server: SocketAddr) -> Self {
        Self { client: reqwest::Client::new(), url: format!("http://{server}/metrics") }
    }

    pub(super) async fn read(&self) -> Result<Reading> {
        let text = self.client.get(&self.url).send().await?.error_for_status()?.text().await?;
        let number = |line: &str| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).unwrap_or(0.0);
        let writes =
            text.lines().find(|line| line.starts_with(REVISION)).map(number).ok_or("etcd tells no revision")?;
        let requests: f64 = text.lines().filter(|line| line.starts_with(MESSAGES)).map(number).sum();
        Ok(Reading { writes: writes as u64, requests: requests as u64 })
    }
}
