//! What the fuzz targets reach of this crate; built with `--cfg fuzzing` alone.

use std::sync::Arc;

use discovery_core::store::Scope;
use discovery_core::{KeySpace, Policy, RegistryUrl, Result};
use redis::{FromRedisValue, PushInfo, Value};

use crate::layout::Layout;
use crate::load::Summary;
use crate::notice::{Id, Notice};
use crate::pushes::Pushes;
use crate::script::Answer;
use crate::{map, node};

/// Reads a URL as [`connect`](crate::connect) does, and dials nothing.
///
/// # Errors
/// As `connect`.
pub fn read_url(url: &RegistryUrl) -> Result<()> {
    let mut options = url.options();
    let policy = Policy::from_url(&mut options)?;
    crate::store(url, options, &policy).map(drop)
}

/// Reads what somebody published on a channel.
pub fn read_notice(message: &[u8]) {
    let layout = Layout::new(KeySpace::new("/a/b").expect("a prefix"));
    let Some(notice) = Notice::parse(message) else { return };
    for scope in [Scope::Service("pay".into()), Scope::Names] {
        let keys = layout.public_keys(&scope);
        let public = keys.of(&notice.id);
        if let Some(key) = layout.space().parse(&public) {
            let written = match scope {
                Scope::Service(_) => layout.id(&key),
                Scope::Names => layout.segment(&key.service),
            };
            assert_eq!(written.as_bytes(), notice.id, "another id than the one that is written for {key}");
        }
    }
}

/// Reads an answer in the server's protocol, as whatever is asked.
pub fn read_answer(bytes: &[u8]) {
    let Ok(value) = redis::parse_redis_value(bytes) else { return };
    // As answers of the script, to the question with the nonce 1.
    if let Ok(mut answer) = Answer::read(value.clone(), 1, "sweep", "pay")
        && let Ok(summary) = Summary::read(&mut answer)
    {
        let _ = (summary.version, summary.first, summary.last, summary.count, answer.len());
        while !answer.is_empty() {
            if answer.bytes().is_err() {
                break;
            }
        }
    }
    let _ = node::role::judge(value.clone(), "host:1");
    if let Value::Array(entries) = value.clone()
        && let Some(map) = map::parse(entries, "host")
    {
        for host in map.hosts() {
            assert!(host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()), "{host}");
        }
        let _ = map.host(0);
    }
    let _ = <Vec<(Id, f64)>>::from_redis_value(value.clone());
    let _ = <Vec<Option<Vec<u8>>>>::from_redis_value(value.clone());
    let _ = <Option<(String, u16)>>::from_redis_value(value.clone());
    if let Value::Push { kind, data } = value {
        let pushes = Arc::new(Pushes::default());
        let mut inbox = pushes.listen("{/discovery/pay}:changes").expect("an open connection");
        pushes.take(PushInfo { kind, data });
        while let Some(message) = inbox.ready() {
            read_notice(&message);
        }
    }
}
