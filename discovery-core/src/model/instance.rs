//! One running copy of a service.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};

use super::{Endpoint, Key, check_name};
use crate::{Error, Result};

/// The weight of an instance that was given none.
///
/// It is 100, not 1, so that a tenth of the traffic can be asked for without touching the others (Dubbo and Kratos use the same).
pub const DEFAULT_WEIGHT: u32 = 100;

/// The most endpoints of an instance. A list of more is a mistake or an attack: each costs a reader ten times what it costs the store.
pub const MAX_ENDPOINTS: usize = 64;

/// The most values of an instance's metadata, for the same reason.
pub const MAX_METADATA: usize = 1_024;

/// One value of the metadata, under its name.
pub(super) type Entry = (Arc<str>, Arc<str>);

/// Whether an instance wants new requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum State {
    /// It takes requests.
    #[default]
    Serving,
    /// It finishes what it has and wants nothing new.
    Draining,
}

/// One running copy of a service, as it is registered and found.
///
/// The id is the identity; every field takes part in change detection, so equality compares them all.
/// Strings are shared: cloning an instance costs a few reference counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Instance {
    service: Arc<str>,
    id: Arc<str>,
    endpoints: Arc<[Endpoint]>,
    weight: u32,
    zone: Option<Arc<str>>,
    version: Option<Arc<str>>,
    /// Sorted by name, each name once; nothing for none, as a fleet has many instances.
    metadata: Option<Arc<[Entry]>>,
    state: State,
    started_at: u64,
    /// Fields of the record that this release does not know; they survive a round trip.
    pub(super) unknown: Option<Arc<Map<String, Value>>>,
}

impl Instance {
    /// Starts building an instance of `service`.
    pub fn builder(service: impl Into<Arc<str>>) -> InstanceBuilder {
        InstanceBuilder {
            service: service.into(),
            id: None,
            endpoints: Vec::new(),
            weight: DEFAULT_WEIGHT,
            zone: None,
            version: None,
            metadata: Vec::new(),
            state: State::Serving,
            started_at: None,
            unknown: None,
            error: None,
        }
    }

    /// Starts building a changed copy.
    pub fn to_builder(&self) -> InstanceBuilder {
        InstanceBuilder {
            service: self.service.clone(),
            id: Some(self.id.clone()),
            endpoints: self.endpoints.to_vec(),
            weight: self.weight,
            zone: self.zone.clone(),
            version: self.version.clone(),
            metadata: self.metadata.as_deref().unwrap_or_default().to_vec(),
            state: self.state,
            started_at: Some(self.started_at),
            unknown: self.unknown.clone(),
            error: None,
        }
    }

    /// The service it belongs to.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// Its identity within the service.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its key: service and id.
    pub fn key(&self) -> Key {
        Key { service: self.service.clone(), id: self.id.clone() }
    }

    /// Where it answers; at least one.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// The first endpoint with one of these schemes, in the order of `schemes`.
    pub fn endpoint(&self, schemes: &[&str]) -> Option<&Endpoint> {
        schemes.iter().find_map(|scheme| self.endpoints.iter().find(|e| e.scheme() == *scheme))
    }

    /// Its share of the traffic relative to its siblings; 0 means drained.
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// The zone it runs in.
    pub fn zone(&self) -> Option<&str> {
        self.zone.as_deref()
    }

    /// The version of the service it runs.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// One value of its metadata.
    pub fn metadata(&self, name: &str) -> Option<&str> {
        let all = self.metadata.as_deref()?;
        let at = all.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        Some(&*all[at].1)
    }

    /// All of its metadata, sorted by name.
    pub fn metadata_iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.metadata.as_deref().unwrap_or_default().iter().map(|(k, v)| (&**k, &**v))
    }

    /// Whether it wants new requests.
    pub fn state(&self) -> State {
        self.state
    }

    /// When it started, by its own clock, to the millisecond.
    pub fn started_at(&self) -> SystemTime {
        UNIX_EPOCH.checked_add(Duration::from_millis(self.started_at)).unwrap_or(UNIX_EPOCH)
    }

    pub(super) fn started_at_millis(&self) -> u64 {
        self.started_at
    }
}

/// Builds an [`Instance`]; the first mistake is reported by [`build`](Self::build).
#[derive(Debug, Clone)]
#[must_use]
pub struct InstanceBuilder {
    service: Arc<str>,
    id: Option<Arc<str>>,
    endpoints: Vec<Endpoint>,
    weight: u32,
    zone: Option<Arc<str>>,
    version: Option<Arc<str>>,
    metadata: Vec<Entry>,
    state: State,
    started_at: Option<u64>,
    unknown: Option<Arc<Map<String, Value>>>,
    error: Option<Error>,
}

impl InstanceBuilder {
    /// Sets the identity; without it the first endpoint's `host:port` is taken.
    ///
    /// That default makes a quick restart on the same address take over its own record (R6) and keeps two processes on one host apart.
    pub fn id(mut self, id: impl Into<Arc<str>>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Adds an endpoint written as `scheme://host:port`.
    pub fn endpoint(mut self, endpoint: &str) -> Self {
        match endpoint.parse() {
            Ok(endpoint) => self.endpoints.push(endpoint),
            Err(error) => self.error = self.error.or(Some(error)),
        }
        self
    }

    /// Replaces all endpoints.
    pub fn endpoints(mut self, endpoints: impl IntoIterator<Item = Endpoint>) -> Self {
        self.endpoints = endpoints.into_iter().collect();
        self
    }

    /// Sets the weight; 0 means drained.
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// Sets the zone.
    pub fn zone(mut self, zone: impl Into<Arc<str>>) -> Self {
        self.zone = Some(zone.into());
        self
    }

    /// Sets the version.
    pub fn version(mut self, version: impl Into<Arc<str>>) -> Self {
        self.version = Some(version.into());
        self
    }

    /// Sets one value of the metadata.
    pub fn metadata(mut self, name: impl Into<Arc<str>>, value: impl Into<Arc<str>>) -> Self {
        let (name, value) = (name.into(), value.into());
        match self.metadata.binary_search_by(|(known, _)| known.cmp(&name)) {
            Ok(at) => self.metadata[at].1 = value,
            Err(at) => self.metadata.insert(at, (name, value)),
        }
        self
    }

    /// Replaces all of the metadata; of several values under one name the last counts.
    pub(super) fn entries(mut self, mut entries: Vec<Entry>) -> Self {
        if !entries.is_sorted_by(|(a, _), (b, _)| a < b) {
            entries.reverse();
            entries.sort_by(|(a, _), (b, _)| a.cmp(b));
            entries.dedup_by(|(a, _), (b, _)| a == b);
        }
        self.metadata = entries;
        self
    }

    /// Sets the state.
    pub fn state(mut self, state: State) -> Self {
        self.state = state;
        self
    }

    /// Sets the start time; without it the time of [`build`](Self::build) is taken.
    pub fn started_at(mut self, at: SystemTime) -> Self {
        self.started_at = Some(millis(at));
        self
    }

    pub(super) fn started_at_millis(mut self, millis: Option<u64>) -> Self {
        self.started_at = millis;
        self
    }

    pub(super) fn unknown(mut self, unknown: Map<String, Value>) -> Self {
        self.unknown = (!unknown.is_empty()).then(|| Arc::new(unknown));
        self
    }

    /// Checks everything and builds the instance.
    ///
    /// # Errors
    /// `InvalidInput` for a bad name, id or endpoint, if there is no endpoint, or for more than [`MAX_ENDPOINTS`] of them or
    /// [`MAX_METADATA`] values of metadata.
    pub fn build(self) -> Result<Instance> {
        if let Some(error) = self.error {
            return Err(error);
        }
        check_name("service", &self.service)?;
        let Some(first) = self.endpoints.first() else {
            return Err(Error::invalid(
                "build",
                format!("instance of {}", self.service),
                "it has no endpoint; add at least one, such as grpc://10.0.0.5:9000",
            ));
        };
        for (what, count, most) in [
            ("endpoints", self.endpoints.len(), MAX_ENDPOINTS),
            ("values of metadata", self.metadata.len(), MAX_METADATA),
        ] {
            if count > most {
                let subject = format!("instance of {}", self.service);
                return Err(Error::invalid("build", subject, format!("it has more than {most} {what}")));
            }
        }
        let id = self.id.unwrap_or_else(|| {
            let host = first.host();
            if first.unix_path().is_some() {
                host.into()
            } else if host.contains(':') {
                format!("[{host}]:{}", first.port()).into()
            } else {
                format!("{host}:{}", first.port()).into()
            }
        });
        check_name("instance id", &id)?;
        Ok(Instance {
            service: self.service,
            id,
            endpoints: shared(self.endpoints),
            weight: self.weight,
            zone: self.zone,
            version: self.version,
            metadata: (!self.metadata.is_empty()).then(|| shared(self.metadata)),
            state: self.state,
            started_at: self.started_at.unwrap_or_else(|| millis(SystemTime::now())),
            unknown: self.unknown,
        })
    }
}

/// The usual single item is shared without a second copy.
fn shared<T>(mut items: Vec<T>) -> Arc<[T]> {
    match (items.pop(), items.is_empty()) {
        (Some(only), true) => Arc::new([only]),
        (Some(last), false) => {
            items.push(last);
            items.into()
        }
        (None, _) => Arc::new([]),
    }
}

fn millis(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f18_the_default_id_is_the_address() {
        let a = Instance::builder("pay").endpoint("grpc://10.0.0.5:9000").build().unwrap();
        let b = Instance::builder("pay").endpoint("grpc://10.0.0.5:9001").build().unwrap();
        assert_eq!(a.id(), "10.0.0.5:9000");
        assert_eq!(b.id(), "10.0.0.5:9001");
    }

    #[test]
    fn r12_the_first_mistake_is_reported() {
        let error = Instance::builder("pay").endpoint("grpc://0.0.0.0:80").endpoint("nonsense").build().unwrap_err();
        assert!(error.to_string().contains("0.0.0.0"), "{error}");
        for builder in [
            Instance::builder("").endpoint("grpc://h:1"),
            Instance::builder("pay"),
            Instance::builder("pay").id("").endpoint("grpc://h:1"),
            Instance::builder("p\u{7}").endpoint("grpc://h:1"),
            Instance::builder("p".repeat(256)).endpoint("grpc://h:1"),
            Instance::builder("p").endpoints(vec![Endpoint::new("grpc", "h", 1).unwrap(); MAX_ENDPOINTS + 1]),
            (0..=MAX_METADATA)
                .fold(Instance::builder("p").endpoint("grpc://h:1"), |b, n| b.metadata(n.to_string(), "")),
        ] {
            assert!(builder.build().is_err());
        }
    }

    #[test]
    fn every_field_takes_part_in_equality() {
        let base = Instance::builder("pay").id("a").endpoint("grpc://h:1").build().unwrap();
        for changed in [
            base.to_builder().weight(1),
            base.to_builder().zone("z"),
            base.to_builder().version("2"),
            base.to_builder().metadata("k", "v"),
            base.to_builder().state(State::Draining),
            base.to_builder().endpoint("http://h:2"),
            base.to_builder().started_at(UNIX_EPOCH),
        ] {
            assert_ne!(changed.build().unwrap(), base);
        }
        assert_eq!(base.to_builder().build().unwrap(), base);
    }
}
