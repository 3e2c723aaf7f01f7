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
use std::fmt;
use std::sync::Arc;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Number, Value};

use super::instance::{DEFAULT_WEIGHT, Entry, MAX_ENDPOINTS, MAX_METADATA};
use super::{Endpoint, Instance, Key, State};
use crate::{Error, ErrorKind, Result};

/// The version of the record's format; a reader refuses a higher one.
pub const RECORD_VERSION: u32 = 1;

/// The record as it is written.
#[derive(Serialize)]
struct Written<'a> {
    v: u32,
    id: &'a str,
    service: &'a str,
    endpoints: Vec<String>,
    weight: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    zone: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'a str>,
    #[serde(skip_serializing_if = "Entries::is_empty")]
    metadata: Entries<'a>,
    state: &'static str,
    started_at: u64,
    #[serde(flatten)]
    unknown: Option<&'a Map<String, Value>>,
}

struct Entries<'a>(&'a Instance);

impl Entries<'_> {
    fn is_empty(&self) -> bool {
        self.0.metadata_iter().next().is_none()
    }
}

impl Serialize for Entries<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.metadata_iter())
    }
}

/// The record as it is read, by hand: a derived reader with a place for unknown fields buffers every field twice. What an instance keeps
/// is made at once of what is borrowed from the record.
#[derive(Default)]
struct Read<'a> {
    v: Option<u32>,
    id: Option<Text<'a>>,
    service: Option<Text<'a>>,
    endpoints: Option<Endpoints>,
    weight: Option<Number>,
    zone: Option<Text<'a>>,
    version: Option<Text<'a>>,
    metadata: Vec<Entry>,
    state: Option<Text<'a>>,
    started_at: Option<u64>,
    unknown: Map<String, Value>,
}

/// Text that is borrowed from the record wherever it has no escapes; a plain `Cow` would always be copied.
#[derive(Debug)]
struct Text<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(AnyText)
    }
}

struct AnyText;

impl<'de> Visitor<'de> for AnyText {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }
}

/// Endpoints as a list of texts. A bad one is judged later: a record of a newer format may have what this release does not know.
struct Endpoints(Result<Vec<Endpoint>>);

impl<'de> Deserialize<'de> for Endpoints {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(AnyEndpoints)
    }
}

struct AnyEndpoints;

impl<'de> Visitor<'de> for AnyEndpoints {
    type Value = Endpoints;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of endpoints")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Endpoints, A::Error> {
        // Nearly always it is one.
        let mut endpoints = Ok(Vec::with_capacity(1));
        while let Some(text) = list.next_element::<Text<'de>>()? {
            if let Ok(some) = &mut endpoints
                // One more than there may be shows that there are too many.
                && some.len() <= MAX_ENDPOINTS
            {
                match Endpoint::parse(&text.0, None) {
                    Ok(endpoint) => some.push(endpoint),
                    Err(error) => endpoints = Err(error),
                }
            }
        }
        Ok(Endpoints(endpoints))
    }
}

/// Names and values in their order; a map would cost more than all the rest of a record.
struct Metadata(Vec<Entry>);

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(AnyMetadata)
    }
}

struct AnyMetadata;

impl<'de> Visitor<'de> for AnyMetadata {
    type Value = Metadata;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Metadata, A::Error> {
        let mut entries = Vec::with_capacity(1);
        while let Some((name, value)) = map.next_entry::<Text<'de>, Text<'de>>()? {
            if entries.len() <= MAX_METADATA {
                entries.push((Arc::from(&*name.0), Arc::from(&*value.0)));
            }
        }
        Ok(Metadata(entries))
    }
}

impl<'de> Deserialize<'de> for Read<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fields)
    }
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Read<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record, which is a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Read<'de>, A::Error> {
        let mut record = Read::default();
        while let Some(name) = map.next_key::<Text<'de>>()? {
            match &*name.0 {
                "v" => record.v = map.next_value()?,
                "id" => record.id = map.next_value()?,
                "service" => record.service = map.next_value()?,
                "endpoints" => record.endpoints = Some(map.next_value()?),
                "weight" => record.weight = map.next_value()?,
                "zone" => record.zone = map.next_value()?,
                "version" => record.version = map.next_value()?,
                "metadata" => {
                    record.metadata = map.next_value::<Option<Metadata>>()?.map_or_else(Vec::new, |all| all.0)
                }
                "state" => record.state = map.next_value()?,
                "started_at" => record.started_at = map.next_value()?,
                _ => _ = record.unknown.insert(name.0.into_owned(), map.next_value()?),
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
    let record = Written {
        v: RECORD_VERSION,
        id: instance.id(),
        service: instance.service(),
        endpoints: instance.endpoints().iter().map(ToString::to_string).collect(),
        weight: instance.weight(),
        zone: instance.zone(),
        version: instance.version(),
        metadata: Entries(instance),
        state: state_text(instance.state()),
        started_at: instance.started_at_millis(),
        unknown: instance.unknown.as_deref(),
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
    let record: Read<'_> = serde_json::from_slice(value).map_err(|e| corrupt(format!("not a record: {e}")))?;
    match record.v {
        Some(version) if version <= RECORD_VERSION => {}
        Some(version) => {
            return Err(corrupt(format!(
                "format version {version} is newer than {RECORD_VERSION}; upgrade the reader"
            )));
        }
        None => return Err(corrupt("it has no format version `v`".to_owned())),
    }
    let (service, id) = (text(&record.service), text(&record.id));
    if service != Some(&key.service) || id != Some(&key.id) {
        return Err(corrupt(format!("it says it is {service:?}/{id:?}")));
    }
    let endpoints =
        record.endpoints.map_or(Ok(Vec::new()), |endpoints| endpoints.0).map_err(|e| corrupt(e.to_string()))?;
    let state = match text(&record.state) {
        None | Some("serving") => State::Serving,
        Some("draining") => State::Draining,
        Some(other) => return Err(corrupt(format!("unknown state {other:?}"))),
    };
    if record.metadata.len() > MAX_METADATA {
        return Err(corrupt(format!("it has more than {MAX_METADATA} values of metadata")));
    }
    let (weight, repaired) = read_weight(record.weight.as_ref());
    let mut builder = Instance::builder(key.service.clone())
        .id(key.id.clone())
        .endpoints(endpoints)
        .weight(weight)
        .state(state)
        .entries(record.metadata)
        .started_at_millis(Some(record.started_at.unwrap_or(0)))
        .unknown(record.unknown);
    if let Some(zone) = record.zone {
        builder = builder.zone(&*zone.0);
    }
    if let Some(version) = record.version {
        builder = builder.version(&*version.0);
    }
    let instance = builder.build().map_err(|e| corrupt(e.to_string()))?;
    Ok(Decoded { instance, repaired })
}

fn text<'a>(text: &'a Option<Text<'_>>) -> Option<&'a str> {
    text.as_ref().map(|text| &*text.0)
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
    fn metadata_in_any_order_is_read_and_the_last_value_counts() {
        let raw = record(r#","endpoints":["grpc://h:1"],"metadata":{"b":"1","a":"2","b":"3"}"#);
        let instance = decode(&key(), &raw).unwrap().instance;
        assert_eq!(instance.metadata_iter().collect::<Vec<_>>(), [("a", "2"), ("b", "3")]);
    }

    #[test]
    fn w06_a_newer_format_is_said_whatever_its_fields_hold_and_the_last_of_two_counts() {
        let newer = br#"{"v":2,"id":"a","service":"pay","endpoints":["grpc+quic:h"]}"#;
        assert!(decode(&key(), newer).unwrap_err().to_string().contains("newer than 1"));
        let other = br#"{"v":1,"id":"b","service":"pay","endpoints":["bad"]}"#;
        assert!(decode(&key(), other).unwrap_err().to_string().contains("it says it is"));
        let twice = record(r#","endpoints":["bad"],"endpoints":["grpc://h:1"]"#);
        assert_eq!(decode(&key(), &twice).unwrap().instance.endpoints().len(), 1);
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
            record(&format!(r#","endpoints":[{}]"#, [r#""grpc://h:1""#; MAX_ENDPOINTS + 1].join(","))),
            record(&format!(
                r#","endpoints":["grpc://h:1"],"metadata":{{{}}}"#,
                [r#""a":"b""#; MAX_METADATA + 1].join(",")
            )),
            record(&format!(r#","endpoints":["grpc://h:1"],"x":{}{}"#, "[".repeat(100_000), "]".repeat(100_000))),
            record(r#","endpoints":["grpc://h:1"],"started_at":-1"#),
            record(r#","endpoints":["grpc://h:1"],"started_at":18446744073709551616"#),
            br#"{"v":4294967296,"id":"a","service":"pay","endpoints":["grpc://h:1"]}"#.to_vec(),
            record(r#","endpoints":["grpc://h:1"],"zone":"\ud800""#),
            [&record("")[..record("").len() - 1], b",\"endpoints\":[\"grpc://h:1\"],\"zone\":\"\xff\"}"].concat(),
            br#"{"v":2,"id":"a","service":"pay","endpoints":["grpc://h:1"]}"#.to_vec(),
            br#"{"v":1,"id":"b","service":"pay","endpoints":["grpc://h:1"]}"#.to_vec(),
            br#"{"v":1,"id":"a","service":"PAY","endpoints":["grpc://h:1"]}"#.to_vec(),
        ] {
            assert_eq!(decode(&key(), &raw).unwrap_err().kind(), ErrorKind::Corrupt);
        }
    }

    #[test]
    fn f13_a_number_that_is_no_weight_becomes_the_default_and_is_reported() {
        for (raw, weight) in [
            ("-1", DEFAULT_WEIGHT),
            ("1.5", DEFAULT_WEIGHT),
            ("4294967296", u32::MAX),
            ("18446744073709551616", DEFAULT_WEIGHT),
        ] {
            let raw = record(&format!(r#","endpoints":["grpc://h:1"],"weight":{raw}"#));
            let decoded = decode(&key(), &raw).unwrap();
            assert_eq!(decoded.instance.weight(), weight);
            assert!(decoded.repaired.is_some());
        }
        let plain = decode(&key(), &record(r#","endpoints":["grpc://h:1"]"#)).unwrap();
        assert_eq!((plain.instance.weight(), plain.repaired), (DEFAULT_WEIGHT, None));
    }

    #[test]
    fn unknown_numbers_survive_to_the_last_digit() {
        let raw =
            record(r#","endpoints":["tcp://h:1"],"later":18446744078888888888888888888888888888888888888888888888888"#);
        let instance = decode(&key(), &raw).unwrap().instance;
        assert_eq!(decode(&key(), &encode(&instance)).unwrap().instance, instance);
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
