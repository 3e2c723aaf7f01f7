//! Redirects of services: where an answer leads is resolved as a URL of the caller is.
//!
//! The rules are those of browsers and of reqwest: 301 and 302 turn POST into GET, 303 turns everything but HEAD into GET, 307 and 308 keep
//! method and body. Credentials are not carried to another service, nor from TLS to plain HTTP. A redirect that leads to no service is not
//! followed: the settings' default headers, which may be credentials, would go along, and nobody can ask a `reqwest::Client` for them.

use http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, LOCATION, PROXY_AUTHORIZATION,
    TRANSFER_ENCODING, WWW_AUTHENTICATE,
};
use http::{HeaderMap, Method, StatusCode};
use reqwest::{Request, Response, Url};
use reqwest_middleware::{Error, Result};

use crate::body::{Condition, Loan};
use crate::called::Called;
use crate::error::CallError;
use crate::hosts::ServiceHosts;

/// Makes the request the next one after an answer, if that is a redirect that can be followed, and says whether it is.
///
/// # Errors
/// If there were too many.
pub(crate) fn follow(
    response: &Response,
    request: &mut Request,
    loan: &Loan,
    hops: &mut usize,
    most: usize,
    hosts: &ServiceHosts,
) -> Result<bool> {
    if most == 0 || !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(false);
    }
    let Some((location, is_trusted)) = location(response, request.url(), hosts) else {
        return Ok(false);
    };
    let method = match response.status() {
        StatusCode::SEE_OTHER if request.method() != Method::HEAD => Method::GET,
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND if request.method() == Method::POST => Method::GET,
        _ => request.method().clone(),
    };
    let drops_body = method != request.method() || response.status() == StatusCode::SEE_OTHER;
    if !drops_body && loan.condition() != Condition::Whole {
        return Ok(false);
    }
    if *hops >= most {
        let service = request.url().host_str().unwrap_or_default().into();
        let why = format!("more than {most} redirects; see ClientBuilder::with_redirects");
        let error = CallError::new(discovery_core::ErrorKind::Internal, &service, why).with_sent();
        return Err(Error::middleware(error));
    }
    // A stream that was begun is gone. One that was not is taken back only if it is to be sent again.
    if !drops_body && !loan.back(request) {
        return Ok(false);
    }
    *hops += 1;
    if drops_body {
        *request.body_mut() = None;
        remove(request.headers_mut(), &[CONTENT_TYPE, CONTENT_LENGTH, CONTENT_ENCODING, TRANSFER_ENCODING]);
    }
    if !is_trusted {
        remove(request.headers_mut(), &[AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION, WWW_AUTHENTICATE]);
        request.headers_mut().remove("cookie2");
    }
    *request.method_mut() = method;
    *request.url_mut() = location;
    Ok(true)
}

/// Where an answer leads, if that is a service, and whether it may have the credentials that were sent here.
fn location(response: &Response, asked: &Url, hosts: &ServiceHosts) -> Option<(Url, bool)> {
    let location = std::str::from_utf8(response.headers().get(LOCATION)?.as_bytes()).ok()?;
    let location = asked.join(location).ok()?;
    let called = response.extensions().get::<Called>()?;
    // Whoever makes absolute redirects of the name that was sent, or of its own address, means the service that was asked.
    if called.is_origin_of(&location) {
        let mut url = asked.clone();
        url.set_path(location.path());
        url.set_query(location.query());
        return Some((url, true));
    }
    let service = hosts.destination(&location).ok()??.service;
    let is_same = service == hosts.destination(asked).ok()??.service;
    let is_as_safe = !called.by_tls() || location.scheme() == "https" || location.scheme() == asked.scheme();
    Some((location, is_same && is_as_safe))
}

fn remove(headers: &mut HeaderMap, names: &[http::HeaderName]) {
    for name in names {
        headers.remove(name);
    }
}
