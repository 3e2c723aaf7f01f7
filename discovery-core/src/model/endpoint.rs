//! Where an instance answers: a scheme and an authority.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use crate::{Error, Result};

/// One address of an instance, such as `grpc://10.0.0.5:9000` or `http://[2001:db8::3c]:443`, or `unix:///run/orders.sock` for those on the
/// same machine.
///
/// The host is kept without brackets, and a port is always present but for a Unix socket.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    scheme: Arc<str>,
    host: Arc<str>,
    port: u16,
}

impl Endpoint {
    /// Makes an endpoint of its parts; an IPv6 host comes with or without brackets.
    ///
    /// # Errors
    /// `InvalidInput` for a malformed scheme, a wildcard, empty or malformed host, or port 0.
    pub fn new(scheme: &str, host: &str, port: u16) -> Result<Self> {
        let subject = || format!("endpoint {scheme}://{}:{port}", without_user(host));
        if scheme.eq_ignore_ascii_case(UNIX) {
            return Err(Error::invalid("use", subject(), "a Unix socket has a path; write unix:///path"));
        }
        check_scheme(scheme).map_err(|why| Error::invalid("use", subject(), why))?;
        let host = normal_host(host).map_err(|why| Error::invalid("use", subject(), why))?;
        if port == 0 {
            return Err(Error::invalid("use", subject(), "port 0 is nobody's address; give the bound port"));
        }
        Ok(Self { scheme: shared_scheme(&lower(scheme)), host: host.into(), port })
    }

    /// The scheme, in lower case.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Makes the endpoint of a Unix socket.
    ///
    /// # Errors
    /// `InvalidInput` for a path that is not absolute, longer than a socket's may be (100 bytes), or has control characters.
    pub fn unix(path: &str) -> Result<Self> {
        if !path.starts_with('/')
            || path.len() > MAX_UNIX_PATH
            || path.ends_with('/')
            || path.contains(char::is_control)
        {
            let why = "give an absolute path of at most 100 bytes";
            return Err(Error::invalid("use", format!("Unix socket {path:?}"), why));
        }
        Ok(Self { scheme: shared_scheme(UNIX), host: path.into(), port: 0 })
    }

    /// The path of a Unix socket; `None` for everything else.
    pub fn unix_path(&self) -> Option<&str> {
        (*self.scheme == *UNIX).then_some(&self.host)
    }

    /// The host: a name or an IP address, IPv6 without brackets and with its zone if it has one. For a Unix socket, its path.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, 0 only for a Unix socket.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `host:port`, with brackets around IPv6. For a Unix socket, its path.
    pub fn authority(&self) -> String {
        if let Some(path) = self.unix_path() {
            return path.to_owned();
        }
        match self.host.split_once('%') {
            // RFC 6874: inside a URI the `%` before a zone is itself encoded.
            Some((address, zone)) => format!("[{address}%25{zone}]:{}", self.port),
            None if self.host.contains(':') => format!("[{}]:{}", self.host, self.port),
            None => format!("{}:{}", self.host, self.port),
        }
    }

    /// Parses `scheme://host:port` or, with a default scheme, `host:port`.
    ///
    /// # Errors
    /// `InvalidInput`, naming what is missing or ambiguous.
    pub fn parse(text: &str, default_scheme: Option<&str>) -> Result<Self> {
        let invalid = |why: &str| Error::invalid("parse", format!("endpoint {:?}", without_user(text)), why);
        let (scheme, authority) = match (text.split_once("://"), default_scheme) {
            (Some((scheme, rest)), _) => (scheme, rest),
            (None, Some(scheme)) => (scheme, text),
            (None, None) => return Err(invalid("no scheme; write scheme://host:port")),
        };
        if scheme.eq_ignore_ascii_case(UNIX) {
            return Self::unix(authority).map_err(|e| invalid(e.message()));
        }
        if authority.contains('@') {
            return Err(invalid("an endpoint has no user, as everybody who discovers it would see the password"));
        }
        let (host, port) = split_authority(authority).map_err(invalid)?;
        Self::new(scheme, host, port).map_err(|e| invalid(e.message()))
    }
}

/// The scheme of Unix sockets.
const UNIX: &str = "unix";
/// What fits into a socket's address everywhere; Linux takes 107 bytes, others 103.
const MAX_UNIX_PATH: usize = 100;

/// Splits `host:port`; an IPv6 address needs its brackets, since its last group would read as a port.
pub(crate) fn split_authority(authority: &str) -> Result<(&str, u16), &'static str> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or("the bracket of the IPv6 address is not closed")?;
        (host, rest.strip_prefix(':').ok_or("no port; write [address]:port")?)
    } else {
        let (host, port) = authority.rsplit_once(':').ok_or("no port; write host:port")?;
        if host.contains(':') {
            return Err("ambiguous IPv6 address; write [address]:port");
        }
        (host, port)
    };
    // `parse` alone would accept a leading plus sign.
    if port.is_empty() || !port.bytes().all(|b| b.is_ascii_digit()) {
        return Err("the port is not a number");
    }
    Ok((host, port.parse().map_err(|_| "the port is above 65535")?))
}

/// What may be quoted in an error: everything up to the last `@` is hidden, where a password stands if there is one.
fn without_user(text: &str) -> Cow<'_, str> {
    match text.rsplit_once('@') {
        Some((_, rest)) => Cow::Owned(format!("***@{rest}")),
        None => Cow::Borrowed(text),
    }
}

fn check_scheme(scheme: &str) -> Result<(), &'static str> {
    let mut bytes = scheme.bytes();
    let head = bytes.next().is_some_and(|b| b.is_ascii_alphabetic());
    if head && bytes.all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b)) && scheme.len() <= 32 {
        Ok(())
    } else {
        Err("a scheme is 1 to 32 letters, digits, `+`, `-` and `.`, beginning with a letter")
    }
}

/// Nearly all endpoints have one of these schemes, and share its name.
fn shared_scheme(scheme: &str) -> Arc<str> {
    static USUAL: LazyLock<[Arc<str>; 5]> = LazyLock::new(|| ["grpc", "http", "tcp", "grpcs", "https"].map(Arc::from));
    USUAL.iter().find(|usual| ***usual == *scheme).cloned().unwrap_or_else(|| scheme.into())
}

/// Nearly everything that is read is in lower case already.
fn lower(text: &str) -> Cow<'_, str> {
    if text.bytes().any(|b| b.is_ascii_uppercase()) {
        Cow::Owned(text.to_ascii_lowercase())
    } else {
        Cow::Borrowed(text)
    }
}

fn normal_host(host: &str) -> Result<Cow<'_, str>, &'static str> {
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    if bare.is_empty() || bare == "*" {
        return Err("a wildcard or empty host is nobody's address; give the address that others can reach");
    }
    let (address, zone) = match bare.split_once('%') {
        Some((address, zone)) => (address, Some(zone.strip_prefix("25").filter(|z| !z.is_empty()).unwrap_or(zone))),
        None => (bare, None),
    };
    if let Ok(ip) = address.parse::<IpAddr>() {
        let mapped = matches!(ip, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some_and(|v4| v4.is_unspecified()));
        if ip.is_unspecified() || mapped {
            return Err("a wildcard host is nobody's address; give the address that others can reach");
        }
        return match (ip, zone) {
            (IpAddr::V6(v6), Some(zone)) => zoned(v6, zone).map(Cow::Owned),
            (_, Some(_)) => Err("only an IPv6 address has a zone"),
            // There is one way to write it.
            (IpAddr::V4(_), None) => Ok(Cow::Borrowed(address)),
            (IpAddr::V6(v6), None) => Ok(Cow::Owned(v6.to_string())),
        };
    }
    let labels_ok = bare.len() <= 253
        && bare.strip_suffix('.').unwrap_or(bare).split('.').all(|label| {
            !label.is_empty()
                && label.len() <= 63
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        });
    if !labels_ok {
        return Err("the host is neither an IP address nor a DNS name");
    }
    // Resolvers read `0`, `127.1` or `0x7f.1` as IPv4 addresses, so a last label that is a number is never a name.
    let last = bare.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    if last.bytes().all(|b| b.is_ascii_digit()) || last.starts_with("0x") || last.starts_with("0X") {
        return Err("the host is a malformed IPv4 address");
    }
    Ok(lower(bare))
}

fn zoned(address: Ipv6Addr, zone: &str) -> Result<String, &'static str> {
    let plain = zone.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~".contains(&b));
    if zone.is_empty() || zone.len() > 64 || !plain {
        return Err("the zone of the IPv6 address is malformed");
    }
    Ok(format!("{address}%{zone}"))
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.authority())
    }
}

impl FromStr for Endpoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn f08_ipv6_keeps_host_and_port() {
        for (text, host, port) in [
            ("http://[2001:db8::3c]:443", "2001:db8::3c", 443),
            ("grpc://[::1]:9000", "::1", 9000),
            ("grpc://[fe80::1%25eth0]:9000", "fe80::1%eth0", 9000),
            ("grpc://10.0.0.5:9000", "10.0.0.5", 9000),
            ("grpc://Db-1.Example:9000", "db-1.example", 9000),
            ("unix:///run/a b.sock", "/run/a b.sock", 0),
        ] {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!((endpoint.host(), endpoint.port()), (host, port), "{text}");
            assert_eq!(endpoint.to_string().parse::<Endpoint>().unwrap(), endpoint);
        }
        assert_eq!(Endpoint::new("grpc", "fe80::1%eth0", 1).unwrap().authority(), "[fe80::1%25eth0]:1");
    }

    #[test]
    fn f08_ambiguous_ipv6_is_refused() {
        for text in ["http://2001:db8::3c:443", "http://::1:80", "http://fe80::1", "http://[::1]", "http://[::1"] {
            assert_eq!(text.parse::<Endpoint>().unwrap_err().kind(), crate::ErrorKind::InvalidInput, "{text}");
        }
    }

    #[test]
    fn r12_wildcards_port_zero_and_malformed_hosts_are_refused() {
        for text in [
            "grpc://0.0.0.0:80",
            "grpc://[::]:80",
            "grpc://[::ffff:0.0.0.0]:80",
            "grpc://*:80",
            "grpc://:80",
            "grpc://0:80",
            "grpc://127.1:80",
            "grpc://1.2.3.4.5:80",
            "grpc://0x7f.1:80",
            "grpc://h.0X7f:80",
            "grpc://a..b:80",
            "grpc://h:0",
            "grpc://h:70000",
            "grpc://h:+80",
            "grpc://h:",
            "grpc://h",
            "h:80",
            "://h:80",
            "1x://h:80",
            "grpc://user@h:80",
            "grpc://h:80/path",
            "grpc://[::1%]:80",
            "grpc://[1.2.3.4%x]:80",
            "unix://run/x.sock",
            "unix://h:80",
            "unix://",
            "unix:///",
            "unix:///a\nb",
            "",
        ] {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }

    #[test]
    fn r12_a_user_is_refused_and_never_shown() {
        for text in [
            "http://root:s3cret@h:80",
            "root:s3cret@h:80",
            "http://root:s3/cret@h",
            "unix:root:s3cret@h",
            "http://root@s3cret@h:1",
        ] {
            let error = text.parse::<Endpoint>().unwrap_err();
            assert!(!format!("{error} {error:?} {error:#?}").contains("s3"), "{error}");
        }
        let error = Endpoint::new("http", "root:s3cret@h", 80).unwrap_err();
        assert!(!error.to_string().contains("s3"), "{error}");
        assert!("unix:///run/orders@1.sock".parse::<Endpoint>().is_ok());
    }

    proptest! {
        #[test]
        fn no_text_panics_and_what_parses_is_stable(text in "\\PC{0,40}") {
            if let Ok(endpoint) = Endpoint::parse(&text, Some("tcp")) {
                prop_assert_eq!(endpoint.to_string().parse::<Endpoint>().unwrap(), endpoint);
            }
        }
    }
}
