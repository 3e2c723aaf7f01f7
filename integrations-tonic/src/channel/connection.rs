//! One HTTP/2 connection at work: its task, and the senders through which requests go into it.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};
use h2::{Ping, PingPong, Reason};
use http::header::{self, HeaderMap, HeaderName};
use http::{Request, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::time::{Duration, Instant, sleep_until};
use tonic::Status;
use tonic::body::Body;

use super::builder::Options;
use super::stream::{Answer, Failed, Opened, Pipe};
use super::wire::{Heard, Io, Wire};

/// How much a server may send ahead of whoever reads one answer: a download over a path of 100 ms reaches 160 Mbit/s. hyper's client has the
/// same.
const STREAM_WINDOW: u32 = 2 * 1024 * 1024;
/// The same for all answers of a connection: sixteen that nobody reads do not keep the others from coming.
const CONNECTION_WINDOW: u32 = 16 * STREAM_WINDOW;
/// How large the headers of an answer may be, as hyper's client has it.
const HEADERS: u32 = 16 * 1024;

/// Whether a connection takes requests, and how many more at once.
#[derive(Debug)]
pub(super) struct Room {
    /// One for each stream that the server lets be open. What has none was not given to the connection, so that it can go elsewhere.
    /// Closed when the connection takes no more.
    permits: Arc<Semaphore>,
    state: watch::Sender<State>,
}

/// How long a connection takes requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Closed,
    /// The server wants fewer pings.
    Pinged,
}

impl Room {
    fn new() -> Arc<Self> {
        Arc::new(Self { permits: Arc::new(Semaphore::new(0)), state: watch::Sender::new(State::Open) })
    }

    /// Resolves once the connection takes no more requests, and says whether that is because of its pings.
    pub(super) async fn closed(&self) -> bool {
        let mut state = self.state.subscribe();
        // The sender is here, so that it is not gone.
        state.wait_for(|state| *state != State::Open).await.is_ok_and(|state| *state == State::Pinged)
    }

    fn close(&self) {
        self.close_as(State::Closed);
    }

    fn close_as(&self, closed: State) {
        self.permits.close();
        self.state.send_if_modified(|state| *state == State::Open && std::mem::replace(state, closed) == State::Open);
    }

    /// Makes the permits as many as there may be streams now. Those that are taken can only be missing later.
    fn allow(&self, limit: usize, permits: &mut usize) {
        let limit = limit.min(Semaphore::MAX_PERMITS);
        if limit > *permits {
            self.permits.add_permits(limit - *permits);
            *permits = limit;
        } else if limit < *permits {
            *permits -= self.permits.forget_permits(*permits - limit);
        }
    }
}

/// The right to open one stream. It is given back when the stream is over.
pub(super) type Permit = OwnedSemaphorePermit;

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

    /// Whether the server lets no further stream be open at the moment.
    pub(super) fn is_full(&self) -> bool {
        self.room.permits.available_permits() == 0
    }

    /// Takes no more requests; those that have a permit go on.
    pub(super) fn close(&self) {
        self.room.close();
    }

    /// A permit, if there is one now.
    pub(super) fn try_enter(&self) -> Option<Permit> {
        self.room.permits.clone().try_acquire_owned().ok()
    }

    /// A permit, as soon as there is one; `None` if there will be none.
    pub(super) async fn enter(&self) -> Option<Permit> {
        self.room.permits.clone().acquire_owned().await.ok()
    }

    /// Sends a request and waits for its answer's head.
    pub(super) async fn send(self, permit: Permit, request: &mut Request<Body>) -> Result<Response<Answer>, Failed> {
        self.open(permit, request).await?.answer(request).await
    }

    /// Opens a stream for a request. What follows needs no sender, so that the connection of an instance that is gone can end.
    async fn open(mut self, permit: Permit, request: &mut Request<Body>) -> Result<Opened, Failed> {
        // A server that is going away has said so, or the numbers of streams are used up: the next connection is another one.
        if poll_fn(|cx| self.streams.poll_ready(cx)).await.is_err() {
            self.room.close();
            return Err(Failed::Unsent);
        }
        remove_hop_by_hop(request.headers_mut());
        let is_empty = http_body::Body::is_end_stream(request.body());
        match self.streams.send_request(head_of(request), is_empty) {
            Ok((response, stream)) => {
                let body = std::mem::take(request.body_mut());
                Ok(Opened::new(response, Pipe::new(body, stream, is_empty), permit))
            }
            Err(error) if is_ours(&error) => {
                Err(Failed::Ours(Status::internal(format!("the request is malformed: {error}"))))
            }
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
pub(super) async fn shake_hands(
    stream: Box<dyn Io>,
    ping_after: Duration,
    options: &Options,
) -> io::Result<(Sender, Arc<Room>)> {
    let (wire, heard, greeting) = Wire::new(stream);
    let mut builder = Builder::new();
    builder.enable_push(false).max_header_list_size(HEADERS);
    builder.initial_window_size(STREAM_WINDOW).initial_connection_window_size(CONNECTION_WINDOW);
    // Both would end a connection because of many small calls: a reader that is slow with small messages, which the windows bound
    // already, and frames of calls that were given up, for which the server is not to blame.
    builder.data_frame_budget(usize::MAX).max_local_error_reset_streams(None);
    let (streams, connection) = builder.handshake(wire).await.map_err(io::Error::other)?;
    let room = Room::new();
    let mut driver = Driver { connection, probe: Some(streams.clone()), room: room.clone(), permits: 0 };
    greet(&mut driver, greeting).await?;
    let limit = options.keepalive_timeout;
    let ping = driver.connection.ping_pong().filter(|_| !ping_after.is_zero());
    tokio::spawn(async move {
        let silence = async {
            match ping {
                Some(ping) => silence(ping, &heard, ping_after, limit).await,
                None => std::future::pending().await,
            }
        };
        let room = driver.room.clone();
        tokio::pin!(silence);
        loop {
            tokio::select! {
                biased;
                ended = &mut driver => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a connection broke");
                    }
                    return;
                }
                _ = room.closed(), if driver.probe.is_some() => driver.probe = None,
                () = &mut silence => {
                    return tracing::debug!(?ping_after, ?limit, "a connection was silent, and its ping not answered");
                }
            }
        }
    });
    Ok((Sender { streams, room: room.clone() }, room))
}

/// A connection that keeps its room up to date.
struct Driver {
    connection: Connection<Wire, Bytes>,
    /// Tells when the server says goodbye. `None` once the connection takes no more requests, since it would keep it open.
    probe: Option<SendRequest<Bytes>>,
    room: Arc<Room>,
    /// How many streams the room has permits for.
    permits: usize,
}

impl Future for Driver {
    type Output = Result<(), h2::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let ended = Pin::new(&mut this.connection).poll(cx);
        if let Some(probe) = &mut this.probe {
            this.room.allow(this.connection.max_concurrent_send_streams(), &mut this.permits);
            if let Poll::Ready(Err(goodbye)) = probe.poll_ready(cx) {
                let pinged = goodbye.is_remote() && goodbye.reason() == Some(Reason::ENHANCE_YOUR_CALM);
                this.room.close_as(if pinged { State::Pinged } else { State::Closed });
                this.probe = None;
            }
        }
        ended
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.room.close();
    }
}

/// Drives the connection until the server has spoken.
async fn greet(driver: &mut Driver, greeting: oneshot::Receiver<()>) -> io::Result<()> {
    let ended = tokio::select! {
        biased;
        ended = driver => ended,
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
