//! The address of a registry: `scheme://user:password@host1:port,host2:port/prefix?option=value`.
//!
//! It is parsed here because no URL parser accepts several hosts. Credentials are kept apart and never printed.

mod login;
mod options;
#[cfg(feature = "tls")]
mod rustls;
mod tls;

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use percent_encoding::percent_decode_str;

pub use login::Login;
pub use options::UrlOptions;
pub use tls::{TlsFiles, TlsMaterial};

use crate::model::Endpoint;
use crate::{Error, Result};

/// A parsed registry URL. `Debug` and `Display` never show credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct RegistryUrl {
    scheme: String,
    user: Option<String>,
    password: Option<String>,
    hosts: Vec<(String, Option<u16>)>,
    path: String,
    options: Vec<(String, String)>,
}

impl RegistryUrl {
    /// Parses a registry URL; see the module's grammar. User, password and path are percent-decoded.
    ///
    /// # Errors
    /// `InvalidInput`, naming what is wrong; the text is quoted without its credentials.
    pub fn parse(text: &str) -> Result<Self> {
        let invalid = |why: &str| Error::invalid("parse", format!("registry URL {:?}", redacted(text)), why);
        let (scheme, rest) = text
            .split_once(':')
            .ok_or_else(|| invalid("no scheme; write scheme://host:port, such as etcd://127.0.0.1:2379"))?;
        if !is_scheme(scheme) {
            return Err(invalid("the scheme is not a word; write scheme://host:port"));
        }
        if rest.contains('#') {
            return Err(invalid("a fragment has no meaning here; encode `#` as %23"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match rest.strip_prefix("//") {
            Some(rest) => match rest.find('/') {
                Some(at) => rest.split_at(at),
                None => (rest, ""),
            },
            None if rest.is_empty() => ("", ""),
            None => return Err(invalid("write `//` after the scheme")),
        };
        if path.contains('@') || query.contains('@') {
            return Err(invalid(
                "credentials with `/` or `?` in them must be percent-encoded, and so must `@` in a path or an option",
            ));
        }
        let (credentials, hosts) = match authority.rsplit_once('@') {
            Some((credentials, hosts)) => (Some(credentials), hosts),
            None => (None, authority),
        };
        let decode = |text: &str| {
            percent_decode_str(text)
                .decode_utf8()
                .map(|t| t.into_owned())
                .map_err(|_| invalid("a percent-encoded part is not UTF-8"))
        };
        let (user, password) = match credentials {
            None => (None, None),
            Some(credentials) => match credentials.split_once(':') {
                Some((user, password)) => (Some(decode(user)?), Some(decode(password)?)),
                None => (Some(decode(credentials)?), None),
            },
        };
        if user.as_deref() == Some("") && password.as_deref().unwrap_or("").is_empty() {
            return Err(invalid("the user before `@` is empty"));
        }
        let hosts = if hosts.is_empty() {
            Vec::new()
        } else {
            hosts.split(',').map(parse_host).collect::<Result<_, _>>().map_err(|why| invalid(&why))?
        };
        let path = decode(path)?;
        if path.split_once("://").is_some_and(|(_, address)| address.contains('@')) {
            return Err(invalid("an address in the path has no user"));
        }
        let mut options: Vec<(String, String)> = Vec::new();
        for pair in query.split('&').filter(|p| !p.is_empty()) {
            let (name, value) =
                pair.split_once('=').ok_or_else(|| invalid("an option has no value; write name=value"))?;
            let (name, value) = (decode(name)?, decode(value)?);
            if options.iter().any(|(known, _)| *known == name) {
                return Err(invalid(&format!("option {name:?} is given twice")));
            }
            options.push((name, value));
        }
        Ok(Self { scheme: scheme.to_ascii_lowercase(), user, password, hosts, path, options })
    }

    /// The scheme, in lower case.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The user, if one is given; empty for `:password@`, which some stores have a meaning for.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The password, if one is given. Do not print it.
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// The hosts as `host:port`, IPv6 in brackets, with `default_port` where none is given.
    ///
    /// # Errors
    /// `InvalidInput` if there is no host, or if one is a wildcard or malformed.
    pub fn hosts(&self, default_port: u16) -> Result<Vec<String>> {
        if self.hosts.is_empty() {
            return Err(Error::invalid(
                "use",
                format!("registry URL {:?}", self.to_string()),
                format!("it names no host; write {}://host:{default_port}", self.scheme),
            ));
        }
        self.hosts
            .iter()
            .map(|(host, port)| Endpoint::new("tcp", host, port.unwrap_or(default_port)).map(|e| e.authority()))
            .collect()
    }

    /// Refuses hosts and credentials, for a scheme where they mean nothing.
    ///
    /// # Errors
    /// `InvalidInput` if there are any.
    pub fn without_authority(&self) -> Result<()> {
        if self.hosts.is_empty() && self.user.is_none() {
            return Ok(());
        }
        let why = format!("{}: has neither hosts nor users; write {}:///prefix", self.scheme, self.scheme);
        Err(Error::invalid("use", format!("registry URL {:?}", self.to_string()), why))
    }

    /// The path: a prefix for most backends, empty or beginning with `/`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// A reader over the options that knows in the end which ones nobody asked for.
    pub fn options(&self) -> UrlOptions {
        UrlOptions::new(self.to_string(), self.options.clone())
    }
}

fn parse_host(text: &str) -> Result<(String, Option<u16>), String> {
    let port = |text: &str| {
        if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
            return Err("a port is not a number; credentials with `/`, `:` or `@` in them must be percent-encoded");
        }
        text.parse::<u16>().map_err(|_| "a port is above 65535")
    };
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or("the bracket of an IPv6 address is not closed")?;
        // With its zone, if it has one.
        if host.split('%').next().is_none_or(|address| address.parse::<Ipv6Addr>().is_err()) {
            return Err("what stands in brackets is no IPv6 address".to_owned());
        }
        return match rest.strip_prefix(':') {
            Some(digits) => Ok((host.to_owned(), Some(port(digits)?))),
            None if rest.is_empty() => Ok((host.to_owned(), None)),
            None => Err("text follows the bracket of an IPv6 address; write [address]:port".to_owned()),
        };
    }
    let parsed = match text.split_once(':') {
        Some((_, rest)) if rest.contains(':') => {
            return Err("an IPv6 address needs brackets; write [address]:port".to_owned());
        }
        Some((host, digits)) => (host.to_owned(), Some(port(digits)?)),
        None => (text.to_owned(), None),
    };
    if parsed.0.is_empty() {
        return Err("a host in the list is empty".to_owned());
    }
    if parsed.0.contains(['%', ';', '=', '\\']) {
        return Err("a host has a character that none has; write `@` itself after user and password".to_owned());
    }
    Ok(parsed)
}

/// What may be said of a text that may not even parse, where a password may stand anywhere: a scheme that is a word, and hosts that are
/// hosts. Everything else is hidden, and so is the path, in which a password with a `/` in it ends.
fn redacted(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) else {
        return "***".to_owned();
    };
    let (hidden, rest) = match rest.rsplit_once('@') {
        // It stands in a password with a `?`, or in an option, behind which others follow.
        Some((before, _)) if before.contains('?') => return format!("{scheme}://***"),
        Some((_, rest)) => ("***@", rest),
        None => ("", rest),
    };
    match rest.split(['/', '?', '#']).next().unwrap_or("") {
        hosts if hosts.split(',').all(|host| parse_host(host).is_ok()) => format!("{scheme}://{hidden}{hosts}"),
        _ => format!("{scheme}://***"),
    }
}

fn is_scheme(text: &str) -> bool {
    text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
}

impl fmt::Display for RegistryUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.scheme)?;
        if self.hosts.is_empty() && self.path.is_empty() {
            return Ok(());
        }
        f.write_str("//")?;
        if self.user.is_some() {
            f.write_str("***@")?;
        }
        for (n, (host, port)) in self.hosts.iter().enumerate() {
            let comma = if n > 0 { "," } else { "" };
            let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
            match port {
                Some(port) => write!(f, "{comma}{host}:{port}")?,
                None => write!(f, "{comma}{host}")?,
            }
        }
        f.write_str(&self.path)
    }
}

impl fmt::Debug for RegistryUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RegistryUrl({self})")
    }
}

impl FromStr for RegistryUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_whole_grammar() {
        let url: RegistryUrl = "etcd://us%40er:p%2Fw%3A@h1:2379,[2001:db8::1]:2380,h3/a/b?ttl=10s".parse().unwrap();
        assert_eq!((url.scheme(), url.user(), url.password()), ("etcd", Some("us@er"), Some("p/w:")));
        assert_eq!(url.hosts(2379).unwrap(), ["h1:2379", "[2001:db8::1]:2380", "h3:2379"]);
        assert_eq!(url.path(), "/a/b");
        assert_eq!(url.to_string(), "etcd://***@h1:2379,[2001:db8::1]:2380,h3/a/b");
        let memory: RegistryUrl = "memory:".parse().unwrap();
        assert_eq!((memory.to_string().as_str(), memory.path()), ("memory:", ""));
        assert_eq!("static:///a:1,b:2".parse::<RegistryUrl>().unwrap().path(), "/a:1,b:2");
    }

    #[test]
    fn bad_urls_are_refused_with_a_reason() {
        for text in [
            "",
            "etcd",
            "://h",
            "1x://h",
            "etcd:h:1",
            "etcd://h:x",
            "etcd://h:70000",
            "etcd://h:",
            "etcd://a,,b",
            "etcd://2001:db8::1:2379",
            "etcd://[::1",
            "etcd://[::1]x",
            "etcd://[]:2",
            "etcd://h/?ttl",
            "etcd://h/?a=1&a=2",
            "etcd://h/#x",
            "etcd://%FF@h",
            "etcd://,",
            "etcd://:@h",
            "etcd://root:1/x@h:1",
        ] {
            assert!(text.parse::<RegistryUrl>().is_err(), "{text}");
        }
        for text in ["etcd://", "etcd:///prefix", "etcd://0.0.0.0:1", "etcd://a b:1"] {
            let url: RegistryUrl = text.parse().unwrap();
            assert!(url.hosts(2379).is_err(), "{text}");
        }
    }

    #[test]
    fn credentials_are_never_printed() {
        for text in [
            "etcd://root:s3cret@h:1/p",
            "etcd://root:s3/cret@h:1",
            "etcd://root:53?s3cret=x@h:1",
            "etcd://root:s3cret@[::1/p",
            "etcd:root:s3cret@h",
            "etcd://root:1/s3cret@h:1",
            "static:///grpc://root:s3cret@h:1",
            "etcd://root:s3cret",
            "etcd://h:1,root:s3cret/p",
            "redis+sentinel://h/main?sentinel_user=a@b&sentinel_password=s3cret",
            // Encoded too much, without an `@`, in brackets, without a scheme, behind `#`, and in a list of addresses.
            "etcd://root:s3cret%40h:2379",
            "etcd://root%3As3cret%40h:2379",
            "etcd:root:s3cret:2379",
            "etcd://root:s3cret/h:1",
            "etcd://root:s3cret?h:1",
            "etcd://[root:s3cret]:1",
            "etcd://[root:s3cret:1",
            "etcd://root:1:s3cret:1",
            "s3cret@h:2379",
            "s3cret@h://x",
            "s3cret",
            "password=s3cret:1",
            "etcd://h#s3cret",
            "static:///b:2,grpc://root:s3cret%40h:1?x=1",
        ] {
            let shown = match text.parse::<RegistryUrl>() {
                Ok(url) => format!("{url} {url:?} {:?}", url.options()),
                Err(error) => format!("{error} {error:?}"),
            };
            assert!(!shown.contains("s3") && !shown.contains("root"), "{shown}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,60}") {
            let _ = text.parse::<RegistryUrl>().map(|u| u.hosts(1));
        }

        #[test]
        fn no_text_after_a_scheme_panics_or_leaks(text in "[a-z:/@,?=&\\[\\]%0-9]{0,40}") {
            let url = format!("etcd://user:hunter2hunter2@{text}");
            let shown = match url.parse::<RegistryUrl>() {
                Ok(url) => format!("{url:?} {:?}", url.hosts(1)),
                Err(error) => format!("{error:?}"),
            };
            prop_assert!(!shown.contains("hunter2"), "{}", shown);
        }
    }
}
