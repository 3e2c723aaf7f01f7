//! Which URLs mean a service.

use std::collections::BTreeSet;
use std::sync::Arc;

use discovery_core::check_name;
use percent_encoding::percent_decode_str;
use reqwest::Url;

/// The scheme that always means a service.
const DISCOVERY: &str = "discovery";

/// Which hosts of `http://` and `https://` URLs are services. All other hosts are left to DNS. `discovery://` always means a service.
///
/// A URL with a port never means a service, since instances have ports of their own; a default port, as in `http://orders:80/`, is the same
/// URL as one without.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ServiceHosts {
    /// Names without a dot, except `localhost`. This is the default: such a name is no public host.
    #[default]
    SingleLabel,
    /// These names and no others, whatever they look like; see [`named`](Self::named).
    Named(BTreeSet<String>),
}

impl ServiceHosts {
    /// These names and no others. An empty list leaves `discovery://` alone. Hosts are compared in lower case, as URLs have them.
    pub fn named<N: AsRef<str>>(names: impl IntoIterator<Item = N>) -> Self {
        Self::Named(names.into_iter().map(|name| name.as_ref().to_ascii_lowercase()).collect())
    }

    pub(crate) fn has(&self, host: &str) -> bool {
        match self {
            Self::SingleLabel => !host.contains('.') && host != "localhost",
            Self::Named(names) => names.contains(host),
        }
    }

    /// The service that a URL means, if it means one.
    pub(crate) fn destination(&self, url: &Url) -> Result<Option<Destination>, discovery_core::Error> {
        let via = match url.scheme() {
            "http" => Via::Plain,
            "https" => Via::Tls,
            DISCOVERY => Via::Any,
            _ => return Ok(None),
        };
        if via == Via::Any {
            return service_of(url).map(|service| Some(Destination { service, via }));
        }
        let service = url.domain().filter(|host| url.port().is_none() && self.has(host));
        Ok(service.map(|service| Destination { service: service.into(), via }))
    }
}

/// The service in a `discovery://` URL, whose host may be any name, percent-encoded where it has to be.
fn service_of(url: &Url) -> Result<Arc<str>, discovery_core::Error> {
    let invalid = |why: &str| {
        let what = format!("service {:?}", url.host_str().unwrap_or_default());
        discovery_core::Error::new(discovery_core::ErrorKind::InvalidInput, "call", what, why)
    };
    if url.port().is_some() {
        return Err(invalid("a service has no port; write discovery://service/path"));
    }
    let host = url.host_str().unwrap_or_default();
    let service = percent_decode_str(host).decode_utf8().map_err(|_| invalid("its name is not UTF-8"))?;
    check_name("service", &service)?;
    Ok(service.into())
}

/// A service, and by which of its endpoints it is called.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Destination {
    pub(crate) service: Arc<str>,
    pub(crate) via: Via,
}

/// By which endpoints a service is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Via {
    /// Those without TLS.
    Plain,
    /// Those with TLS.
    Tls,
    /// Whatever an instance has, with TLS if it has that.
    Any,
}

impl Via {
    /// The schemes of endpoints that can be called so, the most telling first.
    pub(crate) fn schemes(self) -> &'static [&'static str] {
        match self {
            Self::Plain => &["http", "tcp"],
            Self::Tls => &["https", "tcp"],
            Self::Any => &["https", "http", "tcp"],
        }
    }

    /// How an endpoint with this scheme is called. `tcp` does not say, so the URL does, and `discovery` means plain HTTP then.
    pub(crate) fn scheme(self, endpoint: &str) -> &'static str {
        match (self, endpoint) {
            (Self::Tls, _) | (Self::Any, "https") => "https",
            _ => "http",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(hosts: &ServiceHosts, url: &str) -> Option<(String, Via)> {
        let found = hosts.destination(&url.parse().unwrap()).unwrap();
        found.map(|found| (found.service.to_string(), found.via))
    }

    #[test]
    fn names_without_a_dot_and_a_port_are_services() {
        let hosts = ServiceHosts::default();
        assert_eq!(service(&hosts, "http://Orders/x"), Some(("orders".into(), Via::Plain)));
        assert_eq!(service(&hosts, "https://orders:443/x?y"), Some(("orders".into(), Via::Tls)));
        assert_eq!(service(&hosts, "discovery://com.example.Orders/"), Some(("com.example.Orders".into(), Via::Any)));
        assert_eq!(service(&hosts, "discovery://pay%2Fv2"), Some(("pay/v2".into(), Via::Any)));
        for other in
            ["http://orders:8080/", "http://localhost/", "http://example.com/", "http://orders./", "ftp://orders/"]
        {
            assert_eq!(service(&hosts, other), None, "{other}");
        }
        for address in ["http://10.0.0.5/", "http://[::1]/", "http://1/"] {
            assert_eq!(service(&hosts, address), None, "{address}");
        }
    }

    #[test]
    fn named_hosts_are_services_whatever_they_look_like() {
        let hosts = ServiceHosts::named(["Orders.internal"]);
        assert_eq!(service(&hosts, "https://orders.internal/"), Some(("orders.internal".into(), Via::Tls)));
        assert_eq!(service(&hosts, "http://orders/"), None);
        assert_eq!(service(&ServiceHosts::named::<&str>([]), "http://orders/"), None);
        assert!(service(&ServiceHosts::named::<&str>([]), "discovery://orders/").is_some());
    }

    #[test]
    fn what_names_no_service_is_refused_before_anything_is_sent() {
        for url in ["discovery://orders:80/", "discovery:///x", "discovery://%FF/", "discovery://a%00b/"] {
            let refused = ServiceHosts::default().destination(&url.parse().unwrap()).unwrap_err();
            assert_eq!(refused.kind(), discovery_core::ErrorKind::InvalidInput, "{url}");
        }
    }
}
