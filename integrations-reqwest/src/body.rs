//! Requests that can be taken back while nothing of them was sent.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use http_body::{Frame, SizeHint};
use reqwest::{Body, Request};

/// What is left with us of a request that was given away.
pub(crate) enum Loan {
    /// Its body is bytes, which are shared, so the request is there twice.
    Copied(Request),
    /// Its body is a stream, which is there only once.
    Lent { head: Request, body: Shelf },
}

/// What comes back of a request that was given away.
pub(crate) enum Returned {
    /// The request as it was; its body can be sent from the beginning.
    Whole(Request),
    /// The request without its body, which was begun.
    Head(Request),
}

impl Returned {
    pub(crate) fn whole(self) -> Option<Request> {
        match self {
            Self::Whole(request) => Some(request),
            Self::Head(_) => None,
        }
    }
}

impl Loan {
    /// Lends a request out.
    pub(crate) fn of(mut request: Request) -> (Request, Self) {
        if let Some(copy) = request.try_clone() {
            return (request, Self::Copied(copy));
        }
        let shelf = Shelf(Arc::new(Mutex::new(request.body_mut().take())));
        // Only a body can keep a request from being cloned, and it has none.
        let head = request.try_clone().unwrap_or_else(|| Request::new(request.method().clone(), request.url().clone()));
        *request.body_mut() = Some(Body::wrap(Lent { shelf: shelf.clone(), body: None }));
        (request, Self::Lent { head, body: shelf })
    }

    /// The request as the caller gave it.
    pub(crate) fn request(&self) -> &Request {
        let (Self::Copied(request) | Self::Lent { head: request, .. }) = self;
        request
    }

    pub(crate) fn back(self) -> Returned {
        match self {
            Self::Copied(request) => Returned::Whole(request),
            Self::Lent { mut head, body } => match body.lock().take() {
                Some(body) => {
                    *head.body_mut() = Some(body);
                    Returned::Whole(head)
                }
                None => Returned::Head(head),
            },
        }
    }
}

/// Holds a body until somebody asks for its first frame. The lock is held for moments, and by two at most.
#[derive(Clone)]
pub(crate) struct Shelf(Arc<Mutex<Option<Body>>>);

impl Shelf {
    fn lock(&self) -> MutexGuard<'_, Option<Body>> {
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
            let taken = self.shelf.lock().take();
            self.body = taken;
        }
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Some(body) => body.is_end_stream(),
            None => self.shelf.lock().as_ref().is_none_or(Body::is_end_stream),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Some(body) => body.size_hint(),
            None => self.shelf.lock().as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint),
        }
    }
}
