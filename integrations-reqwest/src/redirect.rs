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

/// Makes the request the next one after an answer, if that is a redirect that can be followed, and says whether it is.
///
/// # Errors
/// If there were too many.
pub(crate) fn follow(
    response: &Response,
    request: &mut Request,
    is_whole: bool,
    hops: &mut usize,
    most: usize,
) -> Result<bool> {
    if most == 0 || !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(false);
    }
    let Some(location) = location(response, request.url()) else {
        return Ok(false);
    };
    let method = match response.status() {
        StatusCode::SEE_OTHER if request.method() != Method::HEAD => Method::GET,
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND if request.method() == Method::POST => Method::GET,
        _ => request.method().clone(),
    };
    let drops_body = method != request.method() || response.status() == StatusCode::SEE_OTHER;
    // A stream was sent and is gone.
    if !is_whole && !drops_body {
        return Ok(false);
    }
    if *hops >= most {
        let service = request.url().host_str().unwrap_or_default().into();
        let why = format!("more than {most} redirects; see ClientBuilder::with_redirects");
        return Err(Error::middleware(CallError::new(discovery_core::ErrorKind::Internal, &service, why)));
    }
    *hops += 1;
    if drops_body {
        *request.body_mut() = None;
        remove(request.headers_mut(), &[CONTENT_TYPE, CONTENT_LENGTH, CONTENT_ENCODING, TRANSFER_ENCODING]);
    }
    if !is_same_host(request.url(), &location) {
        remove(request.headers_mut(), &[AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION, WWW_AUTHENTICATE]);
        request.headers_mut().remove("cookie2");
    }
    *request.method_mut() = method;
    *request.url_mut() = location;
    Ok(true)
}

/// Where an answer leads, if it is a place that anybody here can call.
fn location(response: &Response, asked: &Url) -> Option<Url> {
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    let url = asked.join(location).ok()?;
    matches!(url.scheme(), "http" | "https" | "discovery").then_some(url)
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
