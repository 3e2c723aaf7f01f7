//! A backend of one's own: a store that reads a list of addresses from a file, such as one that configuration management writes.
//!
//! The engine adds everything else: watching, staleness when the file cannot be read, the brake, sharing. See CONTRIBUTING.md.
#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use discovery_kit::store::{Capabilities, Digest, RawRecord, Scope, Sink, Store};
use discovery_kit::{Engine, Error, ErrorKind, Instance, KeySpace, Policy, Result, Schemes, encode};

/// A file with one `service scheme://host:port` a line.
struct File(PathBuf, KeySpace, Capabilities);

impl File {
    fn error(&self, kind: ErrorKind, why: impl ToString) -> Error {
        Error::new(kind, "read", self.address(), why.to_string())
    }

    /// All records of a scope, with a revision that changes with the file.
    fn read(&self, scope: &Scope) -> Result<(u64, Vec<RawRecord>)> {
        let text = std::fs::read_to_string(&self.0).map_err(|e| self.error(ErrorKind::Unavailable, e))?;
        let time =
            std::fs::metadata(&self.0).and_then(|m| m.modified()).map_err(|e| self.error(ErrorKind::Unavailable, e))?;
        let since = time.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let revision = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        let mut records = Vec::new();
        for (service, address) in text.lines().filter_map(|line| line.split_once(' ')) {
            if matches!(scope, Scope::Service(wanted) if **wanted != *service) {
                continue;
            }
            let instance =
                Instance::builder(service).endpoint(address.trim()).started_at(std::time::UNIX_EPOCH).build()?;
            records.push(RawRecord { key: self.1.key(&instance.key()), revision, value: encode(&instance) });
        }
        Ok((revision, records))
    }
}

#[async_trait]
impl Store for File {
    fn address(&self) -> String {
        self.0.display().to_string()
    }
    fn capabilities(&self) -> &Capabilities {
        &self.2
    }
    fn parse_key<'a>(&self, key: &'a str) -> Option<(Cow<'a, str>, Cow<'a, str>)> {
        self.1.split(key)
    }
    async fn connect(&self) -> Result<()> {
        self.ping().await
    }
    async fn ping(&self) -> Result<()> {
        self.read(&Scope::Names).map(drop)
    }
    async fn follow(&self, scope: &Scope, sink: &dyn Sink) -> Error {
        let mut seen = 0;
        loop {
            match self.read(scope) {
                Ok((revision, records)) if revision != seen => {
                    seen = revision;
                    sink.part(records);
                    sink.full(revision, Vec::new());
                }
                Ok(_) => {}
                Err(error) => return error,
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    async fn digest(&self, scope: &Scope, since: u64) -> Result<Digest> {
        let (revision, records) = self.read(scope)?;
        let changed = records.iter().filter(|r| r.revision > since).map(|r| (r.key.clone(), r.revision)).collect();
        Ok(Digest { revision, count: records.len(), changed })
    }
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join(format!("discovery-kit-{}.txt", std::process::id()));
    std::fs::write(&path, "orders grpc://10.0.0.5:9000\norders grpc://10.0.0.6:9000\npay http://10.0.0.7:80\n")?;
    let schemes = Schemes::default().with("hosts", |url| {
        let limits = Capabilities::read_only("hosts");
        Ok(Engine::start(Arc::new(File(url.path().into(), KeySpace::new("")?, limits)), Policy::default())?)
    });
    let registry = schemes.connect(&format!("hosts://{}", path.display()))?;
    let mut watch = registry.watch("orders");
    println!("{} instances", watch.ready(Duration::from_secs(5)).await?.len());
    std::fs::write(&path, "orders grpc://10.0.0.5:9000\n")?;
    while watch.changed().await.is_some_and(|set| set.len() != 1) {}
    println!("1 instance");
    Ok(std::fs::remove_file(path)?)
}
