//! Redirects of services: where an answer leads is resolved as a URL of the caller is.
//!
//! The rules are those of browsers and of reqwest: 301 and 302 turn POST into GET, 303 turns everything but HEAD into GET, 307 and 308 keep
//! method and body. Credentials are not carried to another host.

use http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, LOCATION, PROXY_AUTHORIZATION,
    TRANSFER_ENCODING, WWW_AUTHENTICATE,
};
use http::{HeaderMap, Method, StatusCode};
use reqwest::{Request, Response, Url};
use reqwest_middleware::{Error, Result};

use crate::error::CallError;

/// What is kept of a request in case that its answer leads elsewhere.
pub(crate) struct Trail {
    url: Url,
    method: Method,
    headers: HeaderMap,
    /// The whole request, if its body can be sent twice.
    copy: Option<Request>,
    most: usize,
}

impl Trail {
    pub(crate) fn of(request: &Request, most: usize) -> Self {
        let copy = if most == 0 { None } else { request.try_clone() };
        let headers = if most == 0 || copy.is_some() { HeaderMap::new() } else { request.headers().clone() };
        Self { url: request.url().clone(), method: request.method().clone(), headers, copy, most }
    }

    /// The next request, if the answer is a redirect that can be followed.
    ///
    /// # Errors
    /// If there were too many.
    pub(crate) fn follow(self, response: &Response, hops: &mut usize) -> Result<Option<Request>> {
        let Some(location) = self.location(response) else {
            return Ok(None);
        };
        let method = match response.status() {
            StatusCode::SEE_OTHER if self.method != Method::HEAD => Method::GET,
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND if self.method == Method::POST => Method::GET,
            _ => self.method.clone(),
        };
        let drops_body = method != self.method || response.status() == StatusCode::SEE_OTHER;
        let mut request = match self.copy {
            Some(copy) => copy,
            // A stream was sent and is gone.
            None if !drops_body => return Ok(None),
            None => {
                let mut request = Request::new(method.clone(), self.url.clone());
                *request.headers_mut() = self.headers;
                request
            }
        };
        if *hops >= self.most {
            let (kind, service) = (discovery_core::ErrorKind::Internal, self.url.host_str().unwrap_or_default().into());
            let why = format!("more than {} redirects, see ClientBuilder::with_redirects", self.most);
            return Err(Error::middleware(CallError::new(kind, &service, why)));
        }
        *hops += 1;
        if drops_body {
            *request.body_mut() = None;
            remove(request.headers_mut(), &[CONTENT_TYPE, CONTENT_LENGTH, CONTENT_ENCODING, TRANSFER_ENCODING]);
        }
        if !is_same_host(&self.url, &location) {
            remove(request.headers_mut(), &[AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION, WWW_AUTHENTICATE]);
            request.headers_mut().remove("cookie2");
        }
        *request.method_mut() = method;
        *request.url_mut() = location;
        Ok(Some(request))
    }

    fn location(&self, response: &Response) -> Option<Url> {
        let leads = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
        if !leads || self.most == 0 {
            return None;
        }
        let location = response.headers().get(LOCATION)?.to_str().ok()?;
        let url = self.url.join(location).ok()?;
        // A scheme that nobody here can call is for the caller to see.
        matches!(url.scheme(), "http" | "https" | "discovery").then_some(url)
    }
}

fn remove(headers: &mut HeaderMap, names: &[http::HeaderName]) {
    for name in names {
        headers.remove(name);
    }
}

/// Whether credentials for one URL are meant for the other too.
fn is_same_host(one: &Url, other: &Url) -> bool {
    one.scheme() == other.scheme()
        && one.host_str() == other.host_str()
        && one.port_or_known_default() == other.port_or_known_default()
}
