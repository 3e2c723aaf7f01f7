//! A Cluster's map: which master has which slots.

use discovery_core::{Error, ErrorKind, Result};
use redis::Value;

use crate::error::classify;
use crate::node::Node;

/// Slots of a Cluster.
const SLOTS: u16 = 16_384;

/// Ranges of slots and their masters.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Map(Vec<Range>);

#[derive(Debug, PartialEq, Eq)]
struct Range {
    from: u16,
    upto: u16,
    host: String,
}

impl Map {
    /// The master that has a slot.
    pub(crate) fn host(&self, slot: u16) -> Option<&str> {
        self.0.iter().find(|range| (range.from..=range.upto).contains(&slot)).map(|range| &*range.host)
    }

    /// All masters that have slots.
    pub(crate) fn hosts(&self) -> Vec<String> {
        let mut hosts: Vec<_> = self.0.iter().map(|range| range.host.clone()).collect();
        hosts.sort();
        hosts.dedup();
        hosts
    }
}

/// Reads the map as one server of the Cluster sees it.
pub(crate) async fn read(node: &Node) -> Result<Map> {
    let answer: Vec<Value> = node
        .ask(redis::cmd("CLUSTER").arg("SLOTS"))
        .await
        .map_err(|error| classify(error, "read the Cluster's map of", &node.host))?;
    let asked = node.host.rsplit_once(':').map_or("", |(host, _)| host);
    parse(answer, asked)
        .ok_or_else(|| Error::new(ErrorKind::Internal, "read the Cluster's map of", &*node.host, "it has no such form"))
}

/// Reads what a server answered; `None` for anything but a map.
pub(crate) fn parse(answer: Vec<Value>, asked: &str) -> Option<Map> {
    let mut ranges = answer.into_iter().map(|entry| range(entry, asked)).collect::<Option<Vec<_>>>()?;
    ranges.sort_by_key(|range| range.from);
    Some(Map(ranges))
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
