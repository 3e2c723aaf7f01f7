//! One HTTP/2 connection at work: its task, and the senders through which requests go into it.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};
use h2::{Ping, PingPong};
use http::header::{self, HeaderMap, HeaderName};
use http::{Request, Response};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Duration, Instant, sleep_until};
use tonic::body::Body;

use super::builder::Options;
use super::stream::{Answer, Failed, Opened, Pipe};
use super::wire::{Heard, Io, Wire};

/// How much a server may send ahead of whoever reads: for one answer, and for all of a connection. What hyper's client allows, too: a
/// download over a path of 100 ms reaches 160 Mbit/s.
const STREAM_WINDOW: u32 = 2 * 1024 * 1024;
const CONNECTION_WINDOW: u32 = 5 * 1024 * 1024;
/// How large the headers of an answer may be, as hyper's client has it: twice what gRPC's own clients take.
const HEADERS: u32 = 16 * 1024;

/// Whether a connection takes requests, and how many more at once.
#[derive(Debug)]
pub(super) struct Room {
    /// One for each stream that the server lets be open. What has none was not given to the connection, so that it can go elsewhere.
    /// Closed when the connection takes no more.
    permits: Arc<Semaphore>,
    /// How many permits there are in all.
    limit: AtomicUsize,
    closing: Notify,
}

impl Room {
    fn new(limit: usize) -> Arc<Self> {
        let limit = limit.min(Semaphore::MAX_PERMITS);
        let permits = Arc::new(Semaphore::new(limit));
        Arc::new(Self { permits, limit: AtomicUsize::new(limit), closing: Notify::new() })
    }

    /// Resolves once the connection takes no more requests. For one listener.
    pub(super) async fn closed(&self) {
        while !self.permits.is_closed() {
            self.closing.notified().await;
        }
    }

    fn close(&self) {
        self.permits.close();
        self.closing.notify_one();
    }

    /// Waits until one more stream may be opened; `None` if that can never be.
    async fn enter(&self, streams: &SendRequest<Bytes>) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = self.permits.clone().try_acquire_owned() {
            return Some(permit);
        }
        // The server may allow more than it did at first. A limit that was lowered is HTTP/2's to keep.
        let now = streams.current_max_send_streams().min(Semaphore::MAX_PERMITS);
        let before = self.limit.fetch_max(now, Ordering::Relaxed);
        if now > before {
            self.permits.add_permits(now - before);
        }
        self.permits.clone().acquire_owned().await.ok()
    }
}

/// Where requests go in. The connection ends once there is no sender, and what was sent is answered.
#[derive(Clone)]
pub(super) struct Sender {
    streams: SendRequest<Bytes>,
    room: Arc<Room>,
}

impl Sender {
    pub(super) fn is_closed(&self) -> bool {
        self.room.permits.is_closed()
    }

    /// Sends a request and waits for its answer's head.
    pub(super) async fn send(self, request: &mut Request<Body>) -> Result<Response<Answer>, Failed> {
        self.open(request).await?.answer(request).await
    }

    /// Opens a stream for a request. What follows needs no sender, so that the connection of an instance that is gone can end.
    async fn open(mut self, request: &mut Request<Body>) -> Result<Opened, Failed> {
        let permit = self.room.enter(&self.streams).await;
        // A server that is going away has said so, or the numbers of streams are used up: the next connection is another one.
        let is_ready = poll_fn(|cx| self.streams.poll_ready(cx)).await.is_ok();
        let Some(permit) = permit.filter(|_| is_ready) else {
            self.room.close();
            return Err(Failed::Unsent);
        };
        remove_hop_by_hop(request.headers_mut());
        let is_empty = http_body::Body::is_end_stream(request.body());
        match self.streams.send_request(head_of(request), is_empty) {
            Ok((response, stream)) => {
                let body = std::mem::take(request.body_mut());
                Ok(Opened::new(response, Pipe::new(body, stream, is_empty), permit))
            }
            Err(error) if is_ours(&error) => Err(Failed::Broken(error)),
            // The connection ended since it was asked.
            Err(_) => {
                self.room.close();
                Err(Failed::Unsent)
            }
        }
    }
}

/// What HTTP/2 reads of a request. The head itself stays, in case that nothing is sent.
fn head_of(request: &Request<Body>) -> Request<()> {
    let mut head = Request::new(());
    *head.method_mut() = request.method().clone();
    *head.uri_mut() = request.uri().clone();
    *head.version_mut() = http::Version::HTTP_2;
    *head.headers_mut() = request.headers().clone();
    head
}

/// Removes what belongs to a connection of HTTP/1 and makes a request of HTTP/2 malformed (RFC 9113, 8.2.2).
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
    const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
    for name in [header::CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE, KEEP_ALIVE, PROXY_CONNECTION] {
        headers.remove(name);
    }
}

/// Whether the request is at fault and not the connection.
fn is_ours(error: &h2::Error) -> bool {
    !error.is_io() && !error.is_go_away() && !error.is_reset() && error.reason().is_none()
}

/// Speaks HTTP/2 on a stream, and returns once the server has spoken too. The connection's task ends when all senders are gone and what was
/// sent is answered, or when the connection breaks.
pub(super) async fn shake_hands(stream: Box<dyn Io>, options: &Options) -> io::Result<(Sender, Arc<Room>)> {
    let (wire, heard, greeting) = Wire::new(stream);
    let mut builder = Builder::new();
    builder.enable_push(false).max_header_list_size(HEADERS);
    builder.initial_window_size(STREAM_WINDOW).initial_connection_window_size(CONNECTION_WINDOW);
    let (streams, mut connection) = builder.handshake(wire).await.map_err(io::Error::other)?;
    greet(&mut connection, greeting).await?;
    let room = Room::new(connection.max_concurrent_send_streams());
    let (interval, limit) = (options.keepalive_interval, options.keepalive_timeout);
    let ping = connection.ping_pong();
    let closing = Closing(room.clone());
    tokio::spawn(async move {
        let _closing = closing;
        let silence = async {
            match ping {
                Some(ping) => silence(ping, &heard, interval, limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            ended = connection => if let Err(error) = ended {
                tracing::debug!(%error, "a connection broke");
            },
            () = silence => tracing::debug!(?interval, ?limit, "a connection was silent, and its ping not answered"),
        }
    });
    Ok((Sender { streams, room: room.clone() }, room))
}

/// Drives the connection until the server has spoken.
async fn greet(connection: &mut Connection<Wire, Bytes>, greeting: oneshot::Receiver<()>) -> io::Result<()> {
    let ended = tokio::select! {
        biased;
        ended = connection => ended,
        Ok(()) = greeting => return Ok(()),
    };
    Err(ended
        .err()
        .map_or_else(|| io::Error::other("the server closed the connection without a greeting"), io::Error::other))
}

/// Resolves when nothing is heard for an interval, nor after a ping for as long as that may be unanswered. Whatever is heard counts: behind a
/// long download, the answer to a ping may be late.
async fn silence(mut ping: PingPong, heard: &Heard, interval: Duration, limit: Duration) {
    loop {
        sleep_through(|| heard.last().checked_add(interval)).await;
        let asked = Instant::now();
        let answer = async {
            // An error means that the connection broke, which it says itself.
            if ping.send_ping(Ping::opaque()).is_err() || poll_fn(|cx| ping.poll_pong(cx)).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            () = answer => {}
            () = sleep_through(|| asked.max(heard.last()).checked_add(limit)) => return,
        }
    }
}

/// Sleeps until a moment that may move on meanwhile; for ever, if no clock gets there.
async fn sleep_through(moment: impl Fn() -> Option<Instant>) {
    while let Some(moment) = moment() {
        if moment <= Instant::now() {
            return;
        }
        sleep_until(moment).await;
    }
    std::future::pending().await
}

/// Says that the connection is over, however its task ends.
struct Closing(Arc<Room>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}
