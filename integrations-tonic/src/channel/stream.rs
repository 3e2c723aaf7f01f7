//! One request on its way through a connection, and its answer on the way back.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{Reason, RecvStream, SendStream};
use http::{Request, Response};
use http_body::Frame;
use tokio::task::JoinHandle;
use tonic::Status;
use tonic::body::Body;

use super::connection::Permit;

/// Why a request has no answer.
pub(super) enum Failed {
    /// Nothing of it was sent, and the request is as it was.
    Unsent,
    /// It was sent, and the server says that it has not looked at it (RFC 9113, 8.7); the request is as it was.
    Refused(h2::Error),
    /// The request itself cannot be sent, or not to its end.
    Ours(Status),
    Broken(h2::Error),
}

/// A request whose head was given to the connection.
pub(super) struct Opened {
    response: ResponseFuture,
    pipe: Pipe,
    permit: Permit,
}

impl Opened {
    pub(super) fn new(response: ResponseFuture, pipe: Pipe, permit: Permit) -> Self {
        Self { response, pipe, permit }
    }

    /// Sends the body and waits for the answer's head. Dropped, it resets the stream.
    pub(super) async fn answer(self, request: &mut Request<Body>) -> Result<Response<Answer>, Failed> {
        let Self { response, mut pipe, permit } = self;
        // Most bodies are there at once, and need no task.
        let (sent, rest) = match poll_fn(|cx| Poll::Ready(Pin::new(&mut pipe).poll(cx))).await {
            Poll::Ready(sent) => {
                drop(pipe);
                (sent, None)
            }
            Poll::Pending => (Sent::Partly, Some(Rest(tokio::spawn(pipe)))),
        };
        let error = match response.await {
            Ok(response) => {
                return Ok(response.map(|stream| Answer { stream, _rest: rest, _permit: permit, is_over: false }));
            }
            Err(error) => error,
        };
        let sent = match rest {
            // What we reset ourselves was the body's fault, and its task is at its end.
            Some(mut rest) if error.is_reset() && !error.is_remote() => (&mut rest.0).await.unwrap_or(Sent::Partly),
            _ => sent,
        };
        Err(match sent {
            Sent::Whole(body) if was_refused(&error) => {
                *request.body_mut() = Body::new(http_body_util::Full::new(body));
                Failed::Refused(error)
            }
            Sent::Failed(status) => Failed::Ours(status),
            _ => Failed::Broken(error),
        })
    }
}

/// A stream beyond the last one that a server which goes away will look at, or one that it refused on its own.
fn was_refused(error: &h2::Error) -> bool {
    error.is_remote() && (error.is_go_away() || error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM))
}

/// What became of a body.
pub(super) enum Sent {
    /// It was sent in one piece, which is here. It counts as sent even if the stream was over before.
    Whole(Bytes),
    /// It was sent in pieces, or as far as the stream went.
    Partly,
    /// It broke off by itself.
    Failed(Status),
}

/// Sends a body as fast as the server takes it, and resolves when it is sent or can be sent no more. Dropped before, it resets the stream.
pub(super) struct Pipe {
    body: Body,
    stream: SendStream<Bytes>,
    /// The piece that is sent next: the last one says that it is the last, which saves a frame.
    held: Option<Bytes>,
    /// Whether anything was given to the stream.
    begun: bool,
    /// Whether the end was given to it.
    is_over: bool,
}

impl Pipe {
    pub(super) fn new(body: Body, stream: SendStream<Bytes>, is_empty: bool) -> Self {
        Self { body, stream, held: None, begun: false, is_over: is_empty }
    }

    /// Waits until there is room for more, once something was sent. An error means that the stream is over.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ()>> {
        if !self.begun {
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

    /// Gives the held piece to the stream, and the end. That only fails once the stream is over, and then the answer tells why.
    fn send(&mut self, is_last: bool) -> Result<(), h2::Error> {
        let piece = match self.held.take() {
            Some(piece) => piece,
            None if is_last => Bytes::new(),
            None => return Ok(()),
        };
        self.begun = true;
        self.is_over |= is_last;
        self.stream.send_data(piece, is_last)
    }

    fn send_frame(&mut self, frame: Frame<Bytes>) -> Result<(), h2::Error> {
        self.send(false)?;
        match frame.into_data() {
            Ok(piece) => self.held = Some(piece),
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    self.is_over = true;
                    self.stream.send_trailers(trailers)?;
                }
            }
        }
        Ok(())
    }
}

impl Future for Pipe {
    type Output = Sent;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Sent> {
        let this = &mut *self;
        while !this.is_over {
            if ready!(this.poll_room(cx)).is_err() {
                return Poll::Ready(Sent::Partly);
            }
            let sent = match http_body::Body::poll_frame(Pin::new(&mut this.body), cx) {
                Poll::Pending => {
                    return if this.send(false).is_ok() { Poll::Pending } else { Poll::Ready(Sent::Partly) };
                }
                Poll::Ready(None) if !this.begun => {
                    let whole = this.held.clone().unwrap_or_default();
                    // An error means that the stream was refused already.
                    let _ = this.send(true);
                    return Poll::Ready(Sent::Whole(whole));
                }
                Poll::Ready(None) => this.send(true),
                Poll::Ready(Some(Err(status))) => {
                    this.is_over = true;
                    this.stream.send_reset(Reason::INTERNAL_ERROR);
                    return Poll::Ready(Sent::Failed(status));
                }
                Poll::Ready(Some(Ok(frame))) => this.send_frame(frame),
            };
            if sent.is_err() {
                return Poll::Ready(Sent::Partly);
            }
        }
        Poll::Ready(if this.begun { Sent::Partly } else { Sent::Whole(Bytes::new()) })
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        if !self.is_over {
            self.stream.send_reset(Reason::CANCEL);
        }
    }
}

/// The rest of a request that is sent beside its answer, which it does not outlive.
struct Rest(JoinHandle<Sent>);

impl Drop for Rest {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An answer's body. Dropped before its end, it resets the stream.
pub(super) struct Answer {
    stream: RecvStream,
    _rest: Option<Rest>,
    _permit: Permit,
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
                // The server has all it needs. Whether its answer is whole, the status says.
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
