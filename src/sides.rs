//! The URL of several registries as one: `multi:mode?option=value URL URL`.
//!
//! Spaces separate what stands there, as no URL has one: so each side is a whole URL with options of its own, written as it would be alone,
//! and what a config file breaks into lines stays readable.

use discovery_core::multi::{Mode, MultiOptions};
use discovery_core::{Error, KeySpace, RegistryUrl, Result};

pub(crate) const SCHEME: &str = "multi";

/// What such a URL says.
#[derive(Debug)]
pub(crate) struct Sides<'a> {
    /// With their credentials.
    pub(crate) urls: Vec<&'a str>,
    pub(crate) options: MultiOptions,
}

impl<'a> Sides<'a> {
    /// Reads the URL of several registries; `None` for one of another scheme. No error quotes the sides, as they hold credentials.
    pub(crate) fn parse(text: &'a str) -> Result<Option<Self>> {
        let Some((scheme, rest)) = text.trim_start().split_once(':') else { return Ok(None) };
        if !scheme.eq_ignore_ascii_case(SCHEME) {
            return Ok(None);
        }
        // `multi:etcd://h zk://h` and `multi: etcd://h zk://h` mean the same; a mode has no colon before its options.
        let first = rest.split_whitespace().next().unwrap_or("");
        let is_mode =
            !rest.starts_with(char::is_whitespace) && !first.split('?').next().is_some_and(|it| it.contains(':'));
        let (mode, sides) = if is_mode { rest.split_at(first.len()) } else { ("", rest) };
        let (mode, query) = mode.split_once('?').unwrap_or((mode, ""));
        let mode = match mode.to_ascii_lowercase().as_str() {
            "" | "union" => Mode::Union,
            "prefer" => Mode::Prefer,
            "failover" => Mode::Failover,
            _ => return Err(invalid("its mode is neither union nor prefer nor failover")),
        };
        let mut options = format!("{SCHEME}:?{query}").parse::<RegistryUrl>()?.options();
        let read = MultiOptions::from_url(mode, &mut options)?;
        options.finish()?;
        let urls: Vec<_> = sides.split_whitespace().collect();
        if urls.len() < 2 {
            return Err(invalid("it names fewer than two registries"));
        }
        let mut seen: Vec<Place> = Vec::new();
        for url in &urls {
            if url.split(':').next().is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME)) {
                return Err(invalid("one of its sides is a multi: itself; list all registries in one"));
            }
            let url = url.parse::<RegistryUrl>()?;
            let place = Place::of(&url);
            if seen.iter().any(|other| place.is_same(other)) {
                // Each registration would be taken over from itself, and be gone in the end (R6).
                return Err(invalid(&format!("it names {url} twice")));
            }
            seen.push(place);
        }
        Ok(Some(Self { urls, options: read }))
    }
}

/// Where the records of a URL are, whichever way it is written.
struct Place {
    store: String,
    /// In lower case, with ports. One in common is enough: it is the same server, or one of the same cluster.
    hosts: Vec<String>,
    database: String,
    /// Without the default prefix, which may be written or not.
    prefix: String,
}

impl Place {
    fn of(url: &RegistryUrl) -> Self {
        let (store, port) = match url.scheme() {
            "zk" => ("zookeeper", 2181),
            "zks" => ("zookeepers", 2181),
            scheme if scheme.starts_with("zookeeper") => (scheme, 2181),
            scheme if scheme.starts_with("etcd") => (scheme, 2379),
            scheme if scheme.ends_with("+sentinel") => (scheme, 26379),
            // Of another scheme no default is known, so that any number does.
            scheme => (scheme, 6379),
        };
        let path = url.path().trim_end_matches('/');
        Self {
            store: store.to_owned(),
            // Who names no host, or none that can be used, hears of it from the backend.
            hosts: url.hosts(port).unwrap_or_default().iter().map(|host| host.to_ascii_lowercase()).collect(),
            database: url.options().text("db").unwrap_or_else(|| "0".to_owned()),
            prefix: if path == KeySpace::DEFAULT_PREFIX { "" } else { path }.to_owned(),
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        let shares_host = self.hosts.iter().any(|host| other.hosts.contains(host)) || self.hosts == other.hosts;
        let records = |it: &Self| (it.store.clone(), it.database.clone(), it.prefix.clone());
        shares_host && records(self) == records(other)
    }
}

fn invalid(why: &str) -> Error {
    let how = "write multi: URL URL, or multi:MODE?OPTION=VALUE URL URL, with spaces between whole URLs";
    Error::new(discovery_core::ErrorKind::InvalidInput, "use", "registry URL \"multi:\"", format!("{why}; {how}"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Schemes, memory};

    #[test]
    fn each_side_is_a_whole_url() {
        let (zk, etcd) = ("zk://u:p@a:1,b:2/x?ttl=5s&probe=1s", "etcd://[::1]:3/y?ttl=9s");
        for text in [
            format!("multi: {zk} {etcd}"),
            format!("multi:{zk} {etcd}"),
            format!("MULTI:union {zk}\n    {etcd}\n"),
            format!("multi:union?patience=2s&away=15s {zk} {etcd}"),
            format!(" multi:?away=15s {zk} {etcd}"),
        ] {
            let sides = Sides::parse(&text).unwrap().unwrap();
            assert_eq!(sides.urls, [zk, etcd], "{text}");
            assert_eq!(sides.options.mode, Mode::Union);
            assert_eq!(sides.options.away, Duration::from_secs(15));
        }
        let text = format!("multi:failover?away=1m {zk} {etcd}");
        let options = Sides::parse(&text).unwrap().unwrap().options;
        assert_eq!((options.mode, options.away), (Mode::Failover, Duration::from_secs(60)));
        let options = Sides::parse("multi:Prefer?patience=0s zk://a zk://b").unwrap().unwrap().options;
        assert_eq!((options.mode, options.patience), (Mode::Prefer, Duration::ZERO));
        assert!(Sides::parse("etcd://h:1").unwrap().is_none() && Sides::parse("multi").unwrap().is_none());
    }

    #[tokio::test]
    async fn what_cannot_work_is_refused_by_name_and_without_credentials() {
        for (text, said) in [
            ("multi:", "fewer than two"),
            ("multi: static:///a:1", "fewer than two"),
            ("multi:any memory: static:///a:1", "neither union nor prefer"),
            ("multi:union?awy=1s memory: static:///a:1", "did you mean \"away\"?"),
            ("multi:union?away=100days memory: static:///a:1", "out of bounds"),
            ("multi: memory: multi:union static:///a:1", "multi: itself"),
            ("multi: x://a:b@h:1/p?k=1 x://c:d@h:1/p?k=2", "it names x://***@h:1/p twice"),
            ("multi: memory: consul://root:hunter2@h:1", "the scheme \"consul\" is not compiled in"),
            ("multi: memory: static://root:hunter2@h:1", "a fixed list has no user"),
            ("multi: memory: static:///a:1?tll=1s", "did you mean \"ttl\"?"),
            ("multi: memory: etcd://root:hunter2 etcd://h", "registry URL"),
            // The `@` encoded, and a space in the password.
            ("multi: memory: etcd://root:hunter2%40h:1", "registry URL"),
            ("multi: memory: etcd://root:1 hunter2@h:1", "registry URL"),
        ] {
            let error = crate::connect(text).unwrap_err();
            assert!(error.to_string().contains(said), "{text}: {error}");
            assert!(!format!("{error:?} {error:#?}").contains("hunter2"), "{error:?}");
        }
    }

    #[test]
    fn the_same_registry_is_found_out_however_it_is_written() {
        for (one, other, same) in [
            ("etcd://h:2379", "etcd://u:p@H/?ttl=9s", true),
            ("etcd://h", "etcd://h/discovery/", true),
            ("etcd://a,b/x", "etcd://b:2379,c/x", true),
            ("zk://h/services", "zookeeper://h:2181/services", true),
            ("redis://h", "redis://h/discovery?db=0", true),
            ("memory:", "memory:", true),
            ("redis://h?db=0", "redis://h?db=1", false),
            ("etcd://h/a", "etcd://h/b", false),
            ("etcd://h/a/discovery", "etcd://h/a", false),
            ("etcd://h:1", "etcd://h:2", false),
            ("etcd://h:2379", "zk://h:2379", false),
            ("static:///a:1", "static:///b:1", false),
        ] {
            let read = Sides::parse(&format!("multi: {one} {other}")).map(drop);
            assert_eq!(read.is_err(), same, "{one} {other}: {read:?}");
        }
    }

    #[tokio::test]
    async fn sides_are_opened_by_the_table_and_shown_without_credentials() {
        let schemes = Schemes::default().with("mine", |_| memory::connect(&"memory:".parse()?));
        let both = schemes.connect("multi:prefer mine://root:hunter2@h:1 static:///10.0.0.5:9000").unwrap();
        assert_eq!(both.address(), "multi: memory:///discovery static:");
        assert!(!format!("{both:?} {both:#?}").contains("hunter2"));
        let set = both.snapshot("pay", Duration::from_secs(1)).await.unwrap();
        assert_eq!(set.len(), 1);
    }
}
