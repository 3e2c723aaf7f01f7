//! What the test servers answer: what they do is up to the path.

use std::convert::Infallible;
use std::io;

use discovery_harness::Seat;
use futures_util::{StreamExt, stream};
use http::header::{COOKIE, HOST, LOCATION, SET_COOKIE};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::{Request, Response, StatusCode};

pub(crate) type Body = BoxBody<Bytes, io::Error>;

#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) seat: Seat,
    /// The name that the client asked for in its TLS handshake.
    pub(crate) sni: Option<String>,
}

fn full(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).map_err(|never: Infallible| match never {}).boxed()
}

impl Site {
    /// Answers a request.
    /// - `/name`: the server's name; `/host`, `/sni`, `/cookie`, `/method`: what the client sent; `/echo`: the body.
    /// - `/status/<code>`: that status; `/redirect/<code>?<location>`: elsewhere; `/sets/<name>`: a cookie.
    /// - `/wait`: answers once the gate is open; `/stream`: ends then; `/half`: breaks off then.
    pub(crate) async fn answer(self, request: Request<Incoming>) -> Result<Response<Body>, io::Error> {
        self.seat.count();
        let header = |name| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        let (path, query) = (request.uri().path().to_owned(), request.uri().query().unwrap_or_default().to_owned());
        let (first, rest) = path.trim_start_matches('/').split_once('/').unwrap_or((path.trim_start_matches('/'), ""));
        let said = |text: Option<String>| Response::new(full(text.unwrap_or_default()));
        Ok(match first {
            "name" => said(Some(self.seat.name)),
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
                .body(full(self.seat.name))
                .unwrap(),
            "redirect" => Response::builder().status(rest).header(LOCATION, query).body(full("elsewhere")).unwrap(),
            "sets" => Response::builder()
                .header(SET_COOKIE, format!("{rest}={}; Path=/", self.seat.name))
                .body(full(""))
                .unwrap(),
            "wait" => {
                self.seat.gate.opened().await;
                said(Some(self.seat.name))
            }
            "stream" | "half" => {
                let end =
                    if first == "half" { Err(io::Error::other("half")) } else { Ok(Frame::data(Bytes::from("end"))) };
                let begin = stream::iter([Ok(Frame::data(Bytes::from("begin")))]);
                let end = stream::once(async move {
                    self.seat.gate.opened().await;
                    end
                });
                Response::new(BodyExt::boxed(StreamBody::new(begin.chain(end))))
            }
            _ => Response::builder().status(404).body(full(self.seat.name)).unwrap(),
        })
    }
}
