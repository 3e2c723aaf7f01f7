//! The native record: one JSON object an instance.
//!
//! ```json
//! {"v":1,"id":"a","service":"pay","endpoints":["grpc://10.0.0.5:9000"],"weight":100,"state":"serving","started_at":0}
//! ```
//!
//! `zone`, `version` and `metadata` appear when set. Fields that this release does not know survive a round trip.
//! A reader takes what it reads as untrusted: a record is refused whole rather than half believed, with one exception
//! that keeps a service reachable, namely a weight that is a number but not a weight (see [`Decoded::repaired`]).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Number, Value};

use super::{Endpoint, Instance, Key, State, instance::DEFAULT_WEIGHT};
use crate::{Error, ErrorKind, Result};

/// The version of the record's format; a reader refuses a higher one.
pub const RECORD_VERSION: u32 = 1;

/// The record as JSON has it. Reading is by hand below: a derived reader with a place for unknown fields buffers every field twice.
#[derive(Default, Serialize)]
struct Record {
    v: Option<u32>,
    id: Option<String>,
    service: Option<String>,
    endpoints: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<u64>,
    #[serde(flatten)]
    unknown: Map<String, Value>,
}

impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fields)
    }
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Record;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record, which is a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Record, A::Error> {
        let mut record = Record::default();
        while let Some(name) = map.next_key::<Cow<'de, str>>()? {
            match &*name {
                "v" => record.v = map.next_value()?,
                "id" => record.id = map.next_value()?,
                "service" => record.service = map.next_value()?,
                "endpoints" => record.endpoints = map.next_value()?,
                "weight" => record.weight = map.next_value()?,
                "zone" => record.zone = map.next_value()?,
                "version" => record.version = map.next_value()?,
                "metadata" => record.metadata = map.next_value()?,
                "state" => record.state = map.next_value()?,
                "started_at" => record.started_at = map.next_value()?,
                _ => _ = record.unknown.insert(name.into_owned(), map.next_value()?),
            }
        }
        Ok(record)
    }
}

/// An instance read from a record.
#[derive(Debug)]
pub struct Decoded {
    /// The instance.
    pub instance: Instance,
    /// What had to be replaced by a default, for the log.
    pub repaired: Option<String>,
}

/// Writes an instance as a record.
pub fn encode(instance: &Instance) -> Vec<u8> {
    let metadata: BTreeMap<_, _> = instance.metadata_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    let record = Record {
        v: Some(RECORD_VERSION),
        id: Some(instance.id().to_owned()),
        service: Some(instance.service().to_owned()),
        endpoints: instance.endpoints().iter().map(ToString::to_string).collect(),
        weight: Some(instance.weight().into()),
        zone: instance.zone().map(str::to_owned),
        version: instance.version().map(str::to_owned),
        metadata: (!metadata.is_empty()).then_some(metadata),
        state: Some(state_text(instance.state()).to_owned()),
        started_at: Some(instance.started_at_millis()),
        unknown: (*instance.unknown).clone(),
    };
    // Strings, numbers and maps with string keys always have a JSON form.
    serde_json::to_vec(&record).unwrap_or_default()
}

/// Reads the record that was stored under `key`.
///
/// # Errors
/// `Corrupt`, saying what is wrong with it.
pub fn decode(key: &Key, value: &[u8]) -> Result<Decoded> {
    let corrupt = |why: String| Error::new(ErrorKind::Corrupt, "read record", key.to_string(), why);
    let record: Record = serde_json::from_slice(value).map_err(|e| corrupt(format!("not a record: {e}")))?;
    match record.v {
        Some(version) if version <= RECORD_VERSION => {}
        Some(version) => {
            return Err(corrupt(format!(
                "format version {version} is newer than {RECORD_VERSION}; upgrade the reader"
            )));
        }
        None => return Err(corrupt("it has no format version `v`".to_owned())),
    }
    if record.service.as_deref() != Some(&*key.service) || record.id.as_deref() != Some(&*key.id) {
        return Err(corrupt(format!("it says it is {:?}/{:?}", record.service, record.id)));
    }
    let endpoints = record
        .endpoints
        .iter()
        .map(|text| Endpoint::parse(text, None))
        .collect::<Result<Vec<_>>>()
        .map_err(|e| corrupt(e.to_string()))?;
    let state = match record.state.as_deref() {
        None | Some("serving") => State::Serving,
        Some("draining") => State::Draining,
        Some(other) => return Err(corrupt(format!("unknown state {other:?}"))),
    };
    let (weight, repaired) = read_weight(record.weight.as_ref());
    let mut builder = Instance::builder(key.service.clone())
        .id(key.id.clone())
        .endpoints(endpoints)
        .weight(weight)
        .state(state)
        .started_at_millis(Some(record.started_at.unwrap_or(0)))
        .unknown(record.unknown);
    if let Some(zone) = record.zone {
        builder = builder.zone(zone);
    }
    if let Some(version) = record.version {
        builder = builder.version(version);
    }
    for (name, value) in record.metadata.unwrap_or_default() {
        builder = builder.metadata(name, value);
    }
    let instance = builder.build().map_err(|e| corrupt(e.to_string()))?;
    Ok(Decoded { instance, repaired })
}

/// A missing weight is the default; a number that is not a weight is replaced by the default and reported.
///
/// A negative weight must not mean "drained": a typing mistake would take the instance out of service.
fn read_weight(weight: Option<&Number>) -> (u32, Option<String>) {
    let Some(number) = weight else {
        return (DEFAULT_WEIGHT, None);
    };
    match number.as_u64() {
        Some(wide) => match u32::try_from(wide) {
            Ok(weight) => (weight, None),
            Err(_) => (u32::MAX, Some(format!("weight {wide} is above {}; that is used", u32::MAX))),
        },
        None => (DEFAULT_WEIGHT, Some(format!("weight {number} is not a weight; {DEFAULT_WEIGHT} is used"))),
    }
}

fn state_text(state: State) -> &'static str {
    match state {
        State::Serving => "serving",
        State::Draining => "draining",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> Key {
        Key { service: "pay".into(), id: "a".into() }
    }

    fn record(rest: &str) -> Vec<u8> {
        format!(r#"{{"v":1,"id":"a","service":"pay"{rest}}}"#).into_bytes()
    }

    #[test]
    fn the_format_is_stable() {
        let instance = Instance::builder("pay")
            .id("a")
            .endpoint("grpc://[2001:db8::3c]:443")
            .zone("eu-1")
            .version("2.1")
            .metadata("team", "billing")
            .started_at(std::time::UNIX_EPOCH)
            .build()
            .unwrap();
        let text = r#"{"v":1,"id":"a","service":"pay","endpoints":["grpc://[2001:db8::3c]:443"],"weight":100,"zone":"eu-1","version":"2.1","metadata":{"team":"billing"},"state":"serving","started_at":0}"#;
        assert_eq!(String::from_utf8(encode(&instance)).unwrap(), text);
        assert_eq!(decode(&key(), text.as_bytes()).unwrap().instance, instance);
    }

    #[test]
    fn unknown_fields_survive_an_update() {
        let raw = record(r#","endpoints":["grpc://h:1"],"shard":{"n":7}"#);
        let instance = decode(&key(), &raw).unwrap().instance;
        let changed = instance.to_builder().weight(5).build().unwrap();
        let text = String::from_utf8(encode(&changed)).unwrap();
        assert!(text.contains(r#""shard":{"n":7}"#), "{text}");
    }

    #[test]
    fn f09_bad_records_are_refused_with_a_reason() {
        let random: Vec<u8> = (0..300_000).map(|_| fastrand::u8(..)).collect();
        for raw in [
            b"".to_vec(),
            b"{".to_vec(),
            b"null".to_vec(),
            random,
            record(""),
            br#"{"id":"a","service":"pay","endpoints":["grpc://h:1"]}"#.to_vec(),
            br#"{"v":1,"service":"pay","endpoints":["grpc://h:1"]}"#.to_vec(),
            br#"["v",1]"#.to_vec(),
            record(r#","endpoints":[]"#),
            record(r#","endpoints":["grpc://10.0.0.5"]"#),
            record(r#","endpoints":["grpc://10.0.0.5:70000"]"#),
            record(r#","endpoints":[{"port":"80"}]"#),
            record(r#","endpoints":["grpc://0.0.0.0:80"]"#),
            record(r#","endpoints":["grpc://h:1"],"weight":"NaN""#),
            record(r#","endpoints":["grpc://h:1"],"state":"confused""#),
            br#"{"v":2,"id":"a","service":"pay","endpoints":["grpc://h:1"]}"#.to_vec(),
            br#"{"v":1,"id":"b","service":"pay","endpoints":["grpc://h:1"]}"#.to_vec(),
            br#"{"v":1,"id":"a","service":"PAY","endpoints":["grpc://h:1"]}"#.to_vec(),
        ] {
            assert_eq!(decode(&key(), &raw).unwrap_err().kind(), ErrorKind::Corrupt);
        }
    }

    #[test]
    fn f13_a_number_that_is_no_weight_becomes_the_default_and_is_reported() {
        for (raw, weight) in [("-1", DEFAULT_WEIGHT), ("1.5", DEFAULT_WEIGHT), ("4294967296", u32::MAX)] {
            let raw = record(&format!(r#","endpoints":["grpc://h:1"],"weight":{raw}"#));
            let decoded = decode(&key(), &raw).unwrap();
            assert_eq!(decoded.instance.weight(), weight);
            assert!(decoded.repaired.is_some());
        }
        let plain = decode(&key(), &record(r#","endpoints":["grpc://h:1"]"#)).unwrap();
        assert_eq!((plain.instance.weight(), plain.repaired), (DEFAULT_WEIGHT, None));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(raw in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&key(), &raw);
        }

        #[test]
        fn every_instance_survives_the_round_trip(
            service in "\\PC{1,30}", id in "\\PC{1,30}", weight in any::<u32>(), port in 1u16..,
            metadata in proptest::collection::btree_map("\\PC{0,10}", "\\PC{0,10}", 0..4),
        ) {
            let mut builder = Instance::builder(service).id(id).weight(weight).endpoint(&format!("grpc://h:{port}"));
            for (k, v) in metadata {
                builder = builder.metadata(k, v);
            }
            let instance = builder.build().unwrap();
            prop_assert_eq!(decode(&instance.key(), &encode(&instance)).unwrap().instance, instance);
        }
    }
}
