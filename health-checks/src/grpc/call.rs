//! One unary gRPC call on a connection of its own.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use discovery_core::{Endpoint, ErrorKind, Result};
use http::header::{CONTENT_TYPE, HeaderMap, TE, USER_AGENT};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2;
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;

use super::message::MAX_ANSWER;
use crate::check::failure;
use crate::dial::{self, authority, causes, dial};

const METHOD: &str = "/grpc.health.v1.Health/Check";

/// As much of a server's own words as is passed on.
const MAX_WORDS: usize = 200;

/// How a call ended.
pub(super) enum Answer {
    /// With status `OK` and these bytes.
    Ok(Vec<u8>),
    /// With another status, and the server's words.
    Refused(u16, String),
}

/// Sends one message and reads the answer. Everything that belongs to the call ends with its future.
pub(super) async fn call(endpoint: &Endpoint, message: Vec<u8>) -> Result<Answer> {
    let request = request(endpoint, message)?;
    let stream = dial(endpoint).await?;
    let (mut sender, connection) = http2::handshake(Crew::default(), TokioIo::new(stream))
        .await
        .map_err(|error| failure(endpoint, ErrorKind::Unavailable, causes(&error)))?;
    let answer = async {
        match sender.send_request(request).await {
            Ok(response) => read(endpoint, response).await,
            Err(error) => Err(failure(endpoint, ErrorKind::Unavailable, causes(&error))),
        }
    };
    tokio::pin!(answer);
    // A connection that ends has handed over what it had.
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        _ = connection => answer.await,
    }
}

fn request(endpoint: &Endpoint, message: Vec<u8>) -> Result<Request<Full<Bytes>>> {
    let invalid = |error: http::Error| failure(endpoint, ErrorKind::InvalidInput, error.to_string());
    let uri = Uri::builder().scheme("http").authority(authority(endpoint)).path_and_query(METHOD);
    Request::post(uri.build().map_err(invalid)?)
        .header(CONTENT_TYPE, "application/grpc")
        .header(TE, "trailers")
        .header(USER_AGENT, dial::USER_AGENT)
        .body(Full::from(message))
        .map_err(invalid)
}

async fn read(endpoint: &Endpoint, response: Response<Incoming>) -> Result<Answer> {
    let garbled = |why: String| failure(endpoint, ErrorKind::Internal, why);
    if response.status() != StatusCode::OK {
        return Err(garbled(format!("answered HTTP status {}; is it a gRPC server?", response.status())));
    }
    // A server that has only a status to tell sends it in the head.
    if let Some(refused) = status(response.headers()).filter(|(code, _)| *code != 0) {
        return Ok(Answer::Refused(refused.0, refused.1));
    }
    let (mut body, mut answer) = (response.into_body(), Vec::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| failure(endpoint, ErrorKind::Unavailable, causes(&error)))?;
        if let Some(trailers) = frame.trailers_ref() {
            return match status(trailers) {
                Some((0, _)) => Ok(Answer::Ok(answer)),
                Some((code, message)) => Ok(Answer::Refused(code, message)),
                None => Err(garbled("the answer ended without a status".to_owned())),
            };
        }
        let data = frame.data_ref().map_or(&[][..], |data| data);
        if answer.len() + data.len() > MAX_ANSWER {
            return Err(garbled(format!("the answer is longer than {MAX_ANSWER} bytes")));
        }
        answer.extend_from_slice(data);
    }
    Err(garbled("the answer ended without a status; is it a gRPC server?".to_owned()))
}

/// The status and the message in headers or trailers. A status that is no number is none.
fn status(headers: &HeaderMap) -> Option<(u16, String)> {
    let code = headers.get("grpc-status")?.to_str().ok()?.parse().ok()?;
    // Visible ASCII alone; other characters stay percent-encoded.
    let message = headers.get("grpc-message").and_then(|value| value.to_str().ok()).unwrap_or_default();
    Some((code, message.chars().take(MAX_WORDS).collect()))
}

/// Runs what hyper needs beside a connection, and ends it with the connection, whatever the peer does.
#[derive(Clone, Default)]
struct Crew(Arc<Mutex<JoinSet<()>>>);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Crew {
    fn execute(&self, task: F) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).spawn(task);
    }
}
