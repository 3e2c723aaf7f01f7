//! Requests that can be taken back while nothing of them was sent.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use http_body::{Frame, SizeHint};
use reqwest::{Body, Request};

/// A copy of a request on its way, and what makes the request whole again.
pub(crate) struct Loan {
    /// Holds the body if that is a stream, which is there only once. A body of bytes is in the copy and in the request.
    shelf: Option<Shelf>,
}

impl Loan {
    /// Makes the copy that is sent. Until the loan is given back, the request has no body if that is a stream.
    pub(crate) fn of(request: &mut Request) -> (Request, Self) {
        if let Some(copy) = request.try_clone() {
            return (copy, Self { shelf: None });
        }
        let shelf = Shelf(Arc::new(Mutex::new(Shelved { body: request.body_mut().take(), broke: false })));
        // Only a body can keep a request from being cloned, and it has none.
        let mut copy =
            request.try_clone().unwrap_or_else(|| Request::new(request.method().clone(), request.url().clone()));
        *copy.body_mut() = Some(Body::wrap(Lent { shelf: shelf.clone(), body: None }));
        (copy, Self { shelf: Some(shelf) })
    }

    /// Gives the request its body back, and says what became of it.
    pub(crate) fn back(self, request: &mut Request) -> Condition {
        let Some(shelf) = self.shelf else {
            return Condition::Whole;
        };
        let mut shelved = shelf.lock();
        let condition = match (&shelved.body, shelved.broke) {
            (Some(_), _) => Condition::Whole,
            (None, false) => Condition::Begun,
            (None, true) => Condition::Broke,
        };
        *request.body_mut() = shelved.body.take();
        condition
    }
}

/// What became of the body of a request that was sent.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Condition {
    /// It is there and can be sent again.
    Whole,
    /// A stream that was begun is gone.
    Begun,
    /// The stream itself broke off, which is the caller's affair, whatever the connection makes of it.
    Broke,
}

struct Shelved {
    body: Option<Body>,
    broke: bool,
}

/// Holds a body until somebody asks for its first frame. The lock is held for moments, and by two at most.
#[derive(Clone)]
pub(crate) struct Shelf(Arc<Mutex<Shelved>>);

impl Shelf {
    fn lock(&self) -> MutexGuard<'_, Shelved> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A body that stays on the shelf until it is polled, and is as long as it.
struct Lent {
    shelf: Shelf,
    body: Option<Body>,
}

impl http_body::Body for Lent {
    type Data = <Body as http_body::Body>::Data;
    type Error = reqwest::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        if self.body.is_none() {
            let taken = self.shelf.lock().body.take();
            self.body = taken;
        }
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let frame = ready!(Pin::new(body).poll_frame(cx));
        if matches!(frame, Some(Err(_))) {
            self.shelf.lock().broke = true;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Some(body) => body.is_end_stream(),
            None => self.shelf.lock().body.as_ref().is_none_or(Body::is_end_stream),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Some(body) => body.size_hint(),
            None => self.shelf.lock().body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint),
        }
    }
}
