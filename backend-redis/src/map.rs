//! A Cluster's map: which master has which slots.
//!
//! The map is read with each connection and kept until something contradicts it: a redirection, a server that is gone, or a change
//! that is seen while a master is missing. Then everything is connected anew, by the engine's decision.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use discovery_core::{Error, ErrorKind, Result};
use futures_util::future::join_all;
use redis::Value;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::error::classify;
use crate::live::Live;
use crate::node::{Node, PubSub};
use crate::settings::Way;

/// Slots of a Cluster.
const SLOTS: u16 = 16_384;
/// How often a missing master is dialled at most, and how long that may take: a dead one must not hold up the others' probe.
const DIAL_PAUSE: Duration = Duration::from_secs(2);
const DIAL_LIMIT: Duration = Duration::from_millis(200);

/// Ranges of slots and their masters.
pub(crate) struct Map {
    ranges: Vec<Range>,
    /// The masters that could not be reached when the map was read.
    missing: Vec<String>,
    /// When a missing master may be dialled again.
    dial: Mutex<Instant>,
}

#[derive(Debug, PartialEq, Eq)]
struct Range {
    from: u16,
    upto: u16,
    host: String,
}

impl Map {
    /// The master that has a slot.
    pub(crate) fn host(&self, slot: u16) -> Option<&str> {
        self.ranges.iter().find(|range| (range.from..=range.upto).contains(&slot)).map(|range| &*range.host)
    }

    /// Says so if a master is missing and another took its slots, or if it is back.
    pub(crate) async fn check(&self, node: &Node) -> Result<()> {
        let Some(missing) = self.missing.first() else {
            return Ok(());
        };
        let changed = |why: &str| Err(Error::new(ErrorKind::Unavailable, "use", &*node.host, why));
        if read(node).await? != self.ranges {
            return changed("the Cluster's slots have moved");
        }
        {
            let mut dial = self.dial.lock().unwrap_or_else(PoisonError::into_inner);
            if *dial > Instant::now() {
                return Ok(());
            }
            *dial = Instant::now() + DIAL_PAUSE;
        }
        match timeout(DIAL_LIMIT, TcpStream::connect(missing)).await {
            Ok(Ok(_)) => changed("a master of the Cluster is back"),
            _ => Ok(()),
        }
    }
}

/// Reads the map on one server of the Cluster and connects to all masters that can be reached.
pub(crate) async fn open(seed: &str, way: &Way, patience: Duration) -> Result<Live> {
    let guide =
        timeout(patience, Node::open(seed, way, PubSub::Sharded)).await.unwrap_or_else(|_| Err(silent(seed)))?;
    let ranges = read(&guide).await?;
    drop(guide);
    let mut hosts: Vec<_> = ranges.iter().map(|range| range.host.clone()).collect();
    hosts.sort();
    hosts.dedup();
    let opened = join_all(hosts.iter().map(async |host| {
        timeout(patience, Node::ready(host, way, PubSub::Sharded)).await.unwrap_or_else(|_| Err(silent(host)))
    }));
    let (mut nodes, mut missing, mut last) = (Vec::new(), Vec::new(), None);
    for (host, opened) in hosts.iter().zip(opened.await) {
        match opened {
            Ok(node) => nodes.push(node),
            Err(error) if error.is_retryable() => {
                missing.push(host.clone());
                last = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    match (nodes.is_empty(), last) {
        (false, None) => {}
        (false, Some(error)) => {
            tracing::warn!(%error, "a master of the Cluster cannot be reached; the others are used")
        }
        (true, Some(error)) => return Err(error),
        (true, None) => {
            return Err(Error::new(ErrorKind::Unavailable, "connect to", seed, "no master of the Cluster has slots"));
        }
    }
    Ok(Live::many(nodes, Map { ranges, missing, dial: Mutex::new(Instant::now()) }))
}

fn silent(host: &str) -> Error {
    Error::new(ErrorKind::DeadlineExceeded, "connect to", host, "no answer in time")
}

async fn read(node: &Node) -> Result<Vec<Range>> {
    let answer: Vec<Value> = node
        .ask(redis::cmd("CLUSTER").arg("SLOTS"))
        .await
        .map_err(|error| classify(error, "read the Cluster's map of", &node.host))?;
    let asked = node.host.rsplit_once(':').map_or("", |(host, _)| host);
    let mut ranges =
        answer.into_iter().map(|entry| range(entry, asked)).collect::<Option<Vec<_>>>().ok_or_else(|| {
            Error::new(ErrorKind::Internal, "read the Cluster's map of", &*node.host, "it has no such form")
        })?;
    ranges.sort_by_key(|range| range.from);
    Ok(ranges)
}

/// Reads `[from, upto, [host, port, …], …]`, of which the first server is the master. One without a host is the one that was asked.
fn range(entry: Value, asked: &str) -> Option<Range> {
    let Value::Array(fields) = entry else { return None };
    let [Value::Int(from), Value::Int(upto), Value::Array(master), ..] = fields.as_slice() else { return None };
    let [host, Value::Int(port), ..] = master.as_slice() else { return None };
    let host = match host {
        Value::BulkString(host) if !host.is_empty() => std::str::from_utf8(host).ok()?,
        Value::SimpleString(host) if !host.is_empty() => host,
        _ => asked,
    };
    let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() };
    let (from, upto, port) = (u16::try_from(*from).ok()?, u16::try_from(*upto).ok()?, u16::try_from(*port).ok()?);
    Some(Range { from, upto, host: format!("{host}:{port}") })
}

/// The slot of a stem, which begins with its hash tag.
pub(crate) fn slot(stem: &str) -> u16 {
    let tag = stem.strip_prefix('{').and_then(|rest| rest.split_once('}')).map_or(stem, |(tag, _)| tag);
    crc16(tag.as_bytes()) % SLOTS
}

/// CRC-16/XMODEM, which the Cluster specification names.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(
            crc ^ (u16::from(*byte) << 8),
            |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        // As answered by CLUSTER KEYSLOT.
        assert_eq!((slot("{user1000}.following"), slot("{user1000}:names")), (3443, 3443));
    }

    #[test]
    fn a_map_is_read_whatever_it_holds() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let entry = |host: Value, port: i64| {
            let master = Value::Array(vec![host, Value::Int(port), text("id")]);
            Value::Array(vec![Value::Int(0), Value::Int(5_460), master])
        };
        let host = |entry| range(entry, "10.0.0.1").map(|range| range.host);
        assert_eq!(host(entry(text("10.0.0.2"), 7000)).as_deref(), Some("10.0.0.2:7000"));
        assert_eq!(host(entry(text("::1"), 7000)).as_deref(), Some("[::1]:7000"));
        assert_eq!(host(entry(Value::Nil, 7000)).as_deref(), Some("10.0.0.1:7000"));
        assert_eq!(host(entry(text("h"), 70_000)), None);
        assert_eq!(host(Value::Array(vec![Value::Int(1)])), None);
    }
}
