//! Where and under which name an instance is called.

use std::net::{IpAddr, SocketAddr};

use discovery_core::{Endpoint, Instance};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Url};

use crate::hosts::Via;
use crate::pin::Pin;

/// The metadata in which an instance says under which name it is called: the one in its certificate, which is also sent as SNI and `Host`.
/// Without it, that is the service's name.
pub const TLS_NAME: &str = "tls.name";

/// Where and under which name an instance is called.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Target {
    pub(crate) endpoint: Endpoint,
    /// Scheme and logical name. Without a port, the one that the name is pinned to counts.
    pub(crate) base: Url,
    /// Whether the name of `base` leads to the endpoint only in a client that was made for it.
    pinned: bool,
}

impl Target {
    /// Chooses endpoint and name, or says why the instance cannot be called.
    pub(crate) fn of(instance: &Instance, via: Via) -> Result<Self, String> {
        let schemes = via.schemes();
        let Some(endpoint) = instance.endpoint(schemes).cloned() else {
            return Err(format!("it has no endpoint with the scheme {}", schemes.join(" or ")));
        };
        let scheme = via.scheme(endpoint.scheme());
        let named = match instance.metadata(TLS_NAME) {
            Some(name) => match base(scheme, name) {
                Some(base) => Some(base),
                None => return Err(format!("its metadata {TLS_NAME} is {name:?}, which is not a host name")),
            },
            None => base(scheme, instance.service()),
        };
        // A service whose name cannot be a host, such as `pay/v2`, is called by its address.
        let (base, pinned) = match named {
            Some(base) => (base, true),
            None => {
                let address = format!("{scheme}://{}", endpoint.authority());
                (Url::parse(&address).map_err(|error| format!("{address} is no URL: {error}"))?, false)
            }
        };
        Ok(Self { endpoint, base, pinned })
    }

    /// Makes the URL of a request one for this instance's client.
    pub(crate) fn lead(&self, url: &mut Url) {
        let same = url.scheme() == self.base.scheme() && url.host_str() == self.base.host_str();
        // Most are right as they are, and taking one apart is what costs most of all here.
        if !same || url.port() != self.base.port() || !url.username().is_empty() || url.password().is_some() {
            *url = in_place_of(self.base.clone(), url);
        }
    }

    /// The URL by the instance's address, without a query, for errors.
    pub(crate) fn address(&self, asked: &Url) -> Option<Url> {
        let base = Url::parse(&format!("{}://{}", self.base.scheme(), self.endpoint.authority())).ok()?;
        let mut url = in_place_of(base, asked);
        url.set_query(None);
        Some(url)
    }

    /// Makes the instance's client of the user's settings. Redirects are not its business, since they may lead to another instance.
    ///
    /// # Errors
    /// Those of the user's settings.
    pub(crate) fn client(&self, settings: ClientBuilder) -> reqwest::Result<Client> {
        let mut builder = settings.redirect(Policy::none());
        if let Some(name) = self.base.domain().filter(|_| self.pinned) {
            builder = match self.endpoint.host().parse::<IpAddr>() {
                Ok(ip) => builder.resolve(name, SocketAddr::new(ip, self.endpoint.port())),
                Err(_) => builder.dns_resolver(Pin::new(name, &self.endpoint)),
            };
        }
        builder.build()
    }
}

/// A URL of a name, if it can be a host and is not an address: that would be called instead of the endpoint.
fn base(scheme: &str, name: &str) -> Option<Url> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if !name.bytes().all(plain) {
        return None;
    }
    Url::parse(&format!("{scheme}://{name}")).ok().filter(|url| url.domain().is_some())
}

fn in_place_of(mut base: Url, asked: &Url) -> Url {
    base.set_path(asked.path());
    base.set_query(asked.query());
    base
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(service: &str, endpoint: &str, name: Option<&str>, via: Via) -> Result<Target, String> {
        let mut instance = Instance::builder(service).endpoint(endpoint);
        if let Some(name) = name {
            instance = instance.metadata(TLS_NAME, name);
        }
        Target::of(&instance.build().unwrap(), via)
    }

    fn called(service: &str, endpoint: &str, name: Option<&str>, via: Via) -> String {
        let mut url = "discovery://x/a%20b/c?q=1#f".parse().unwrap();
        target(service, endpoint, name, via).unwrap().lead(&mut url);
        url.to_string()
    }

    #[test]
    fn names_come_from_the_metadata_or_the_service_or_else_the_address() {
        let (plain, secure) = ("http://10.0.0.5:9000", "https://[::1]:9443");
        assert_eq!(called("orders", plain, None, Via::Plain), "http://orders/a%20b/c?q=1");
        assert_eq!(called("orders", secure, None, Via::Any), "https://orders/a%20b/c?q=1");
        assert_eq!(called("orders", secure, Some("o.example"), Via::Tls), "https://o.example/a%20b/c?q=1");
        assert_eq!(called("pay/v2", plain, None, Via::Any), "http://10.0.0.5:9000/a%20b/c?q=1");
        // A name that reads as an address would be called as one.
        assert_eq!(called("10", plain, None, Via::Any), "http://10.0.0.5:9000/a%20b/c?q=1");
    }

    #[test]
    fn tcp_says_nothing_so_the_url_does() {
        for (via, scheme) in [(Via::Plain, "http"), (Via::Tls, "https"), (Via::Any, "http")] {
            assert!(called("orders", "tcp://10.0.0.5:9000", None, via).starts_with(&format!("{scheme}://orders/")));
        }
        assert!(target("orders", "https://10.0.0.5:9000", None, Via::Plain).unwrap_err().contains("http or tcp"));
        assert!(target("orders", "http://10.0.0.5:9000", None, Via::Tls).is_err());
    }

    #[test]
    fn a_name_from_the_registry_that_is_an_address_or_no_host_is_refused() {
        for name in ["10.9.9.9", "1", "[::1]", "a b", "evil.example:443", "user@evil.example", "a/b", ""] {
            let refused = target("orders", "http://10.0.0.5:9000", Some(name), Via::Plain).unwrap_err();
            assert!(refused.contains(TLS_NAME), "{refused}");
        }
    }
}
