//! JSON over HTTP in front of the greeters of a registry: `cargo run --features etcd --example gateway -- --registry URL [--listen ADDRESS]`,
//! then `curl -d '{"name": "you"}' http://ADDRESS/hello`. It prints the address that it listens on.
#![allow(clippy::print_stdout, reason = "the caller reads the address")]

use std::time::Duration;

use axum::{Json, Router, body::Bytes, extract::State, http::StatusCode, routing::post};
use discovery_greeter::{GreeterClient, HelloRequest};
use discovery_kit::{attempts::RetryPolicy, picker::RoundRobin};
// In a project of your own `discovery_kit::tonic`, with its feature `tonic`.
use discovery_tonic::{Channel, Retries};
use serde_json::{Value, json};
use tonic::{Code, Request, Response};

/// How long a caller waits at most, for a greeter to come and for its answer.
const PATIENCE: Duration = Duration::from_secs(2);

type Answer = (StatusCode, Json<Value>);

async fn hello(State(mut greeter): State<GreeterClient<Channel>>, body: Bytes) -> Answer {
    let name = match serde_json::from_slice::<Value>(&body) {
        Ok(body) => body.get("name").and_then(Value::as_str).map(str::to_owned),
        Err(error) => return problem(StatusCode::BAD_REQUEST, &format!("the body is not JSON: {error}")),
    };
    let Some(name) = name else {
        return problem(StatusCode::UNPROCESSABLE_ENTITY, "the body has no name; send {\"name\": \"…\"}");
    };
    let mut request = Request::new(HelloRequest { name, count: 0 });
    request.set_timeout(PATIENCE);
    match greeter.say_hello(request).await.map(Response::into_inner) {
        Ok(reply) => (StatusCode::OK, Json(json!({ "message": reply.message, "server": reply.server }))),
        Err(status) => problem(http_status(status.code()), status.message()),
    }
}

fn problem(status: StatusCode, why: &str) -> Answer {
    (status, Json(json!({ "error": why })))
}

/// The statuses of Google's API guide (`google.rpc.Code`).
fn http_status(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::Cancelled | Code::Unknown | Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let (mut registry, mut listen) = ("memory:", "127.0.0.1:0");
    for pair in arguments.chunks(2) {
        match pair {
            [flag, value] if flag == "--registry" => registry = value,
            [flag, value] if flag == "--listen" => listen = value,
            _ => return Err(format!("{pair:?}: known are --registry URL and --listen ADDRESS").into()),
        }
    }
    // Once more if the greeter was lost meanwhile: no harm is done by saying hello twice.
    let channel = Channel::builder(discovery_kit::connect(registry)?.watch("greeter"), RoundRobin::new())
        .with_retries(Retries::new(RetryPolicy::default()));
    let greeter = GreeterClient::new(channel.build());
    let listener = tokio::net::TcpListener::bind(listen).await?;
    println!("{}", listener.local_addr()?);
    Ok(axum::serve(listener, Router::new().route("/hello", post(hello)).with_state(greeter)).await?)
}
