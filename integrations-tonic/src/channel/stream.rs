//! One request on its way through a connection, and its answer on the way back.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{Reason, RecvStream, SendStream};
use http::{Request, Response};
use http_body::Frame;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::AbortHandle;
use tonic::body::Body;

/// Why a request has no answer.
pub(super) enum Failed {
    /// Nothing of it was sent, and the request is as it was.
    Unsent,
    /// It was sent, and the server says that it has not looked at it (RFC 9113, 8.7); the request is as it was.
    Refused(h2::Error),
    Broken(h2::Error),
}

/// A request whose head was given to the connection.
pub(super) struct Opened {
    response: ResponseFuture,
    pipe: Pipe,
    permit: OwnedSemaphorePermit,
}

impl Opened {
    pub(super) fn new(response: ResponseFuture, pipe: Pipe, permit: OwnedSemaphorePermit) -> Self {
        Self { response, pipe, permit }
    }

    /// Sends the body and waits for the answer's head. Dropped, it resets the stream.
    pub(super) async fn answer(self, request: &mut Request<Body>) -> Result<Response<Answer>, Failed> {
        let Self { response, mut pipe, permit } = self;
        // Most bodies are there at once, and need no task.
        let (whole, rest) = match poll_fn(|cx| Poll::Ready(Pin::new(&mut pipe).poll(cx))).await {
            Poll::Ready(whole) => {
                drop(pipe);
                (whole, None)
            }
            Poll::Pending => (None, Some(Rest(tokio::spawn(pipe).abort_handle()))),
        };
        match response.await {
            Ok(response) => Ok(response.map(|stream| Answer { stream, _rest: rest, _permit: permit, is_over: false })),
            Err(error) => Err(match whole {
                Some(whole) if was_refused(&error) => {
                    *request.body_mut() = Body::new(http_body_util::Full::new(whole));
                    Failed::Refused(error)
                }
                _ => Failed::Broken(error),
            }),
        }
    }
}

/// A stream beyond the last one that a server which goes away will look at, or one that it refused on its own.
fn was_refused(error: &h2::Error) -> bool {
    error.is_remote() && (error.is_go_away() || error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM))
}

/// Sends a body as fast as the server takes it. Resolves when it is sent or can be sent no more; with the body, if it was in one piece.
pub(super) struct Pipe {
    body: Body,
    stream: SendStream<Bytes>,
    /// The piece that is sent next: the last one says that it is the last, which saves a frame.
    held: Option<Bytes>,
    /// How many pieces were given to the stream.
    sent: usize,
    is_over: bool,
}

impl Pipe {
    pub(super) fn new(body: Body, stream: SendStream<Bytes>, is_empty: bool) -> Self {
        Self { body, stream, held: None, sent: 0, is_over: is_empty }
    }

    /// Waits until there is room for more, once something was sent. An error means that the stream is over.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ()>> {
        if self.sent == 0 {
            return Poll::Ready(Ok(()));
        }
        if self.stream.poll_reset(cx).is_ready() {
            return Poll::Ready(Err(()));
        }
        // A single byte: how large the next piece is shows only when it is there.
        self.stream.reserve_capacity(1);
        while self.stream.capacity() == 0 {
            if !matches!(ready!(self.stream.poll_capacity(cx)), Some(Ok(_))) {
                return Poll::Ready(Err(()));
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Gives the held piece to the stream, which only fails once that is over; the answer tells why.
    fn send(&mut self, is_last: bool) -> Result<(), h2::Error> {
        match self.held.take() {
            Some(piece) => self.send_piece(piece, is_last),
            None if is_last => self.send_piece(Bytes::new(), true),
            None => Ok(()),
        }
    }

    fn send_piece(&mut self, piece: Bytes, is_last: bool) -> Result<(), h2::Error> {
        self.sent += 1;
        self.is_over |= is_last;
        self.stream.send_data(piece, is_last)
    }
}

impl Future for Pipe {
    type Output = Option<Bytes>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if this.is_over {
            return Poll::Ready((this.sent == 0).then(Bytes::new));
        }
        loop {
            if ready!(this.poll_room(cx)).is_err() {
                return Poll::Ready(None);
            }
            match http_body::Body::poll_frame(Pin::new(&mut this.body), cx) {
                Poll::Pending => {
                    return match this.send(false) {
                        Ok(()) => Poll::Pending,
                        Err(_) => Poll::Ready(None),
                    };
                }
                Poll::Ready(None) => {
                    let whole = (this.sent == 0).then(|| this.held.clone().unwrap_or_default());
                    // It fails if the stream was refused already; then the body is whole all the same.
                    let _ = this.send(true);
                    return Poll::Ready(whole);
                }
                Poll::Ready(Some(Err(_))) => {
                    this.stream.send_reset(Reason::INTERNAL_ERROR);
                    return Poll::Ready(None);
                }
                Poll::Ready(Some(Ok(frame))) => {
                    let sent = this.send(false).and_then(|()| match frame.into_data() {
                        Ok(piece) => {
                            this.held = Some(piece);
                            Ok(true)
                        }
                        Err(frame) => match frame.into_trailers() {
                            Ok(trailers) => this.stream.send_trailers(trailers).map(|()| false),
                            Err(_) => Ok(true),
                        },
                    });
                    if !sent.unwrap_or(false) {
                        return Poll::Ready(None);
                    }
                }
            }
        }
    }
}

/// The rest of a request that is sent beside its answer, which it does not outlive.
struct Rest(AbortHandle);

impl Drop for Rest {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An answer's body. Dropped before its end, it resets the stream.
pub(super) struct Answer {
    stream: RecvStream,
    _rest: Option<Rest>,
    _permit: OwnedSemaphorePermit,
    /// All data was read.
    is_over: bool,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        if !self.is_over {
            match ready!(self.stream.poll_data(cx)) {
                Some(Ok(data)) => {
                    let taken = self.stream.flow_control().release_capacity(data.len());
                    return Poll::Ready(Some(taken.map(|()| Frame::data(data))));
                }
                // The server has all it needs, and its answer is whole.
                Some(Err(error)) if error.reason() == Some(Reason::NO_ERROR) => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => self.is_over = true,
            }
        }
        let trailers = ready!(self.stream.poll_trailers(cx));
        Poll::Ready(trailers.map(|trailers| trailers.map(Frame::trailers)).transpose())
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }
}
