//! Which address to register for a listener.
//!
//! In this order: what the caller says, what the environment says, what was bound, and for a wildcard the address from which the
//! registry is reached. A wildcard or port 0 is never registered.

use std::net::{IpAddr, SocketAddr};

use crate::model::Endpoint;
use crate::{Error, Result};

/// The environment variable that overrides the advertised address: `host` or `host:port`.
pub const ADVERTISE_ENV: &str = "DISCOVERY_ADVERTISE";

/// Finds the endpoint to register for a listener that is bound to `bound`.
///
/// `explicit` is what the caller says and `environment` the value of [`ADVERTISE_ENV`], each `host` or `host:port`; `source` is the
/// local address from which the registry is reached. Loopback is taken as it is: that is what a registry on the same machine sees.
///
/// # Errors
/// `InvalidInput` if what is said is malformed or a wildcard, or if only a wildcard is known.
pub fn endpoint(
    scheme: &str,
    bound: SocketAddr,
    explicit: Option<&str>,
    environment: Option<&str>,
    source: Option<IpAddr>,
) -> Result<Endpoint> {
    let invalid = |why: String| Error::invalid("advertise", bound.to_string(), why);
    if bound.port() == 0 {
        return Err(invalid("port 0 is not bound; bind first, then register what was bound".to_owned()));
    }
    if let Some(said) = explicit.or(environment.filter(|text| !text.is_empty())) {
        let (host, port) = split(said).map_err(&invalid)?;
        return Endpoint::new(scheme, host, port.unwrap_or(bound.port()));
    }
    if !bound.ip().is_unspecified() {
        return Endpoint::new(scheme, &bound.ip().to_string(), bound.port());
    }
    match source {
        Some(source) if source.is_ipv6() && bound.is_ipv4() => Err(invalid(format!(
            "the listener takes IPv4 only and the registry is reached from {source}; say the address, or set {ADVERTISE_ENV}"
        ))),
        Some(source) if !source.is_unspecified() => Endpoint::new(scheme, &source.to_string(), bound.port()),
        _ => Err(invalid(format!("a wildcard is nobody's address; say the address, or set {ADVERTISE_ENV}"))),
    }
}

/// Splits `host`, `host:port`, `[v6]`, `[v6]:port` or a bare IPv6 address.
fn split(said: &str) -> Result<(&str, Option<u16>), String> {
    if said.parse::<IpAddr>().is_ok() || !said.contains(':') || said.ends_with(']') {
        return Ok((said, None));
    }
    let (host, port) = crate::model::split_authority(said).map_err(|why| format!("{said:?}: {why}"))?;
    Ok((host, Some(port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(bound: &str, explicit: Option<&str>, env: Option<&str>, source: Option<&str>) -> Result<String> {
        let source = source.map(|s| s.parse().unwrap());
        endpoint("grpc", bound.parse().unwrap(), explicit, env, source).map(|e| e.to_string())
    }

    #[test]
    fn f19_what_is_registered_is_an_address_that_others_can_reach() {
        let ok = |b, e, v, s| find(b, e, v, s).unwrap();
        assert_eq!(ok("127.0.0.1:80", None, None, None), "grpc://127.0.0.1:80");
        assert_eq!(ok("0.0.0.0:4711", None, None, Some("10.0.0.5")), "grpc://10.0.0.5:4711");
        assert_eq!(ok("[::]:4711", None, None, Some("2001:db8::7")), "grpc://[2001:db8::7]:4711");
        assert_eq!(ok("[::]:4711", None, None, Some("10.0.0.5")), "grpc://10.0.0.5:4711");
        assert_eq!(ok("0.0.0.0:80", Some("pay.example"), Some("x:1"), None), "grpc://pay.example:80");
        assert_eq!(ok("0.0.0.0:80", None, Some("10.1.1.1:8080"), None), "grpc://10.1.1.1:8080");
        assert_eq!(ok("0.0.0.0:80", None, Some(""), Some("10.0.0.5")), "grpc://10.0.0.5:80");
        assert_eq!(ok("[::]:80", Some("2001:db8::3c"), None, None), "grpc://[2001:db8::3c]:80");
        assert_eq!(ok("[::]:80", Some("[2001:db8::3c]:443"), None, None), "grpc://[2001:db8::3c]:443");
        for (bound, explicit, source) in [
            ("0.0.0.0:80", None, None),
            ("[::]:80", None, None),
            ("0.0.0.0:80", None, Some("2001:db8::7")),
            ("0.0.0.0:0", None, Some("10.0.0.5")),
            ("0.0.0.0:80", Some("0.0.0.0"), None),
            ("0.0.0.0:80", Some("h:0"), None),
            ("0.0.0.0:80", Some("::"), None),
            ("0.0.0.0:80", Some("h:x"), None),
            ("0.0.0.0:80", Some(""), None),
        ] {
            assert!(find(bound, explicit, None, source).is_err(), "{bound} {explicit:?} {source:?}");
        }
    }
}
