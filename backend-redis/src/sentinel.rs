//! Asking a Sentinel who the master is.

use std::sync::Arc;

use discovery_core::{Error, ErrorKind, Result};

use crate::error::classify;
use crate::node::{Node, PubSub};
use crate::settings::Way;

/// The address of the master with this name, as one Sentinel sees it. It may be wrong during a failover; the server itself is asked next.
pub(crate) async fn master(sentinel: &str, way: &Arc<Way>, name: &str) -> Result<String> {
    let node = Node::open(sentinel, way, PubSub::Plain).await?;
    let question = redis::cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(name).to_owned();
    let answer: Option<(String, u16)> =
        node.ask(&question).await.map_err(|error| classify(error, "ask the Sentinel", sentinel))?;
    match answer {
        Some((host, port)) if host.contains(':') => Ok(format!("[{host}]:{port}")),
        Some((host, port)) => Ok(format!("{host}:{port}")),
        // Another Sentinel may know it, and this one may come to.
        None => Err(Error::new(
            ErrorKind::Unavailable,
            "ask the Sentinel",
            sentinel,
            format!("it knows no master named {name:?}; check the first segment of the URL's path"),
        )),
    }
}
