//! Whether a page of the instance answers well.

use std::ops::RangeInclusive;

use async_trait::async_trait;
use discovery_core::{Endpoint, Error, ErrorKind, Result};
use http::header::{ACCEPT, CONNECTION, HOST, HeaderValue, USER_AGENT};
use http::uri::PathAndQuery;
use http::{Request, StatusCode, Uri};
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use crate::Check;
use crate::check::failure;
use crate::dial::{self, authority, causes, dial};

/// Statuses that mean "well", redirects included, as in Kubernetes' probes
/// (<https://kubernetes.io/docs/tasks/configure-pod-container/configure-liveness-readiness-startup-probes/#define-a-liveness-http-request>).
const WELL: RangeInclusive<u16> = 200..=399;

/// Sends `GET` over HTTP/1.1 on a new connection, and looks at the status of the answer.
///
/// Redirects are not followed, and the answer's body is not read. By default the path is `/` and statuses from 200 to 399 are well.
#[derive(Debug, Clone)]
pub struct HttpCheck {
    path: PathAndQuery,
    host: Option<HeaderValue>,
    well: RangeInclusive<u16>,
}

impl Default for HttpCheck {
    fn default() -> Self {
        Self { path: PathAndQuery::from_static("/"), host: None, well: WELL }
    }
}

impl HttpCheck {
    /// Asks for this path, such as `/healthz` or `/ready?deep=1`.
    ///
    /// # Errors
    /// `InvalidInput` if it is no path of a URL, or does not begin with a slash.
    pub fn new(path: &str) -> Result<Self> {
        let invalid = |why: String| Error::new(ErrorKind::InvalidInput, "check", format!("path {path:?}"), why);
        if !path.starts_with('/') {
            return Err(invalid("it does not begin with a slash; write /healthz".to_owned()));
        }
        let path = path.parse().map_err(|error| invalid(format!("{error}")))?;
        Ok(Self { path, ..Self::default() })
    }

    /// Sets which statuses are well.
    #[must_use]
    pub fn with_statuses(mut self, well: RangeInclusive<u16>) -> Self {
        self.well = well;
        self
    }

    /// Sets the `Host` header, which is the endpoint's `host:port` otherwise.
    ///
    /// # Errors
    /// `InvalidInput` if it cannot be a header's value.
    pub fn with_host(mut self, host: &str) -> Result<Self> {
        let value = HeaderValue::from_str(host).map_err(|error| {
            Error::new(ErrorKind::InvalidInput, "check", format!("host {host:?}"), error.to_string())
        })?;
        self.host = Some(value);
        Ok(self)
    }

    fn request(&self, endpoint: &Endpoint) -> Result<Request<Empty<Bytes>>> {
        let host = match &self.host {
            Some(host) => host.clone(),
            None => HeaderValue::from_str(&authority(endpoint))
                .map_err(|error| failure(endpoint, ErrorKind::InvalidInput, error.to_string()))?,
        };
        Request::get(Uri::from(self.path.clone()))
            .header(HOST, host)
            .header(USER_AGENT, dial::USER_AGENT)
            .header(ACCEPT, "*/*")
            .header(CONNECTION, "close")
            .body(Empty::new())
            .map_err(|error| failure(endpoint, ErrorKind::InvalidInput, error.to_string()))
    }
}

#[async_trait]
impl Check for HttpCheck {
    fn schemes(&self) -> &[&str] {
        &["http", "tcp"]
    }

    async fn check(&self, endpoint: &Endpoint) -> Result<()> {
        let status = ask(endpoint, self.request(endpoint)?).await?;
        if self.well.contains(&status.as_u16()) {
            return Ok(());
        }
        Err(failure(endpoint, ErrorKind::Unavailable, format!("GET {} answered {status}", self.path)))
    }
}

async fn ask(endpoint: &Endpoint, request: Request<Empty<Bytes>>) -> Result<StatusCode> {
    let broken = |error: hyper::Error| failure(endpoint, ErrorKind::Unavailable, causes(&error));
    let stream = dial(endpoint).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let answer = sender.send_request(request);
    tokio::pin!(answer);
    // Both in one future, so that nothing of a check outlives it. A connection that ends has handed over what it had.
    let response = tokio::select! {
        biased;
        response = &mut answer => response,
        _ = connection => answer.await,
    };
    Ok(response.map_err(broken)?.status())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_path_or_host_is_refused() {
        for path in ["", "healthz", "http://h/", "/a b", "/\n"] {
            assert_eq!(HttpCheck::new(path).unwrap_err().kind(), ErrorKind::InvalidInput, "{path:?}");
        }
        assert!(HttpCheck::new("/ready?deep=1").is_ok());
        assert_eq!(HttpCheck::default().with_host("a\nb").unwrap_err().kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn the_host_is_the_endpoints_unless_given() {
        let endpoint = "http://[::1]:8080".parse().unwrap();
        let host = |check: HttpCheck| check.request(&endpoint).unwrap().headers()[HOST].clone();
        assert_eq!(host(HttpCheck::default()), "[::1]:8080");
        assert_eq!(host(HttpCheck::default().with_host("orders.example").unwrap()), "orders.example");
    }
}
