//! What the test servers answer: what they do is up to the path.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::{StreamExt, stream};
use http::header::{COOKIE, HOST, LOCATION, SET_COOKIE};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::{Request, Response, StatusCode};
use tokio::sync::watch;

pub(crate) type Body = BoxBody<Bytes, io::Error>;

#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) name: String,
    /// The name that the client asked for in its TLS handshake.
    pub(crate) sni: Option<String>,
    pub(crate) gate: watch::Receiver<bool>,
    pub(crate) requests: Arc<AtomicUsize>,
}

fn full(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).map_err(|never: Infallible| match never {}).boxed()
}

impl Site {
    /// Answers a request.
    /// - `/name`: the server's name; `/host`, `/sni`, `/cookie`, `/method`: what the client sent; `/echo`: the body.
    /// - `/status/<code>`: that status; `/redirect/<code>?<location>`: elsewhere; `/sets/<name>`: a cookie.
    /// - `/wait`: answers once the gate is open; `/stream`: ends then; `/half`: breaks off then.
    pub(crate) async fn answer(mut self, request: Request<Incoming>) -> Result<Response<Body>, io::Error> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let header = |name| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        let (path, query) = (request.uri().path().to_owned(), request.uri().query().unwrap_or_default().to_owned());
        let (first, rest) = path.trim_start_matches('/').split_once('/').unwrap_or((path.trim_start_matches('/'), ""));
        let said = |text: Option<String>| Response::new(full(text.unwrap_or_default()));
        Ok(match first {
            "name" => said(Some(self.name)),
            "host" => said(header(HOST)),
            "sni" => said(self.sni),
            "cookie" => said(header(COOKIE)),
            "method" => {
                said(Some(format!("{} {query} {}", request.method(), header(http::header::AUTHORIZATION).is_some())))
            }
            "echo" => {
                let whole = request.into_body().collect().await.map_err(io::Error::other)?;
                Response::new(full(whole.to_bytes()))
            }
            "status" => Response::builder()
                .status(StatusCode::from_bytes(rest.as_bytes()).unwrap())
                .body(full(self.name))
                .unwrap(),
            "redirect" => Response::builder().status(rest).header(LOCATION, query).body(full("elsewhere")).unwrap(),
            "sets" => {
                Response::builder().header(SET_COOKIE, format!("{rest}={}; Path=/", self.name)).body(full("")).unwrap()
            }
            "wait" => {
                self.open().await;
                said(Some(self.name))
            }
            "stream" | "half" => {
                let end =
                    if first == "half" { Err(io::Error::other("half")) } else { Ok(Frame::data(Bytes::from("end"))) };
                let begin = stream::iter([Ok(Frame::data(Bytes::from("begin")))]);
                let end = stream::once(async move {
                    self.open().await;
                    end
                });
                Response::new(BodyExt::boxed(StreamBody::new(begin.chain(end))))
            }
            _ => Response::builder().status(404).body(full(self.name)).unwrap(),
        })
    }

    async fn open(&mut self) {
        // The gate's owner is gone only when the test is over.
        let _ = self.gate.wait_for(|open| *open).await;
    }
}
