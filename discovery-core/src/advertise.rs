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
    let said = explicit.map(|text| ("the advertised address", text));
    let said = said.or(environment.filter(|text| !text.is_empty()).map(|text| (ADVERTISE_ENV, text)));
    if let Some((who, text)) = said {
        let of = |why: &str| invalid(format!("{who} {text:?}: {why}"));
        let (host, port) = split(text).map_err(of)?;
        return Endpoint::new(scheme, host, port.unwrap_or(bound.port())).map_err(|error| of(error.message()));
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

/// Splits `host`, `host:port`, `[v6]` or `[v6]:port`. A bare IPv6 address is refused, since its last group may be meant as a port (F08).
fn split(said: &str) -> Result<(&str, Option<u16>), &'static str> {
    if said.contains("://") {
        return Err("write host or host:port, without a scheme");
    }
    if said.ends_with(']') || !said.contains(':') {
        return Ok((said, None));
    }
    let (host, port) = crate::model::split_authority(said)?;
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
        assert_eq!(ok("[::]:80", Some("[2001:db8::3c]"), None, None), "grpc://[2001:db8::3c]:80");
        for (said, why) in
            [("2001:db8::3c:443", "ambiguous"), ("http://x:1", "without a scheme"), ("0.0.0.0", "wildcard")]
        {
            let error = find("0.0.0.0:80", None, Some(said), None).unwrap_err().to_string();
            assert!(error.contains("DISCOVERY_ADVERTISE") && error.contains(why), "{error}");
        }
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
