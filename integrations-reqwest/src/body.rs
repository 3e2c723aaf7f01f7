//! Requests that can be taken back while nothing of them was sent.

use std::error::Error;
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

    /// The loan of a request that has its body already.
    pub(crate) fn repaid() -> Self {
        Self { shelf: None }
    }

    /// What became of the body.
    pub(crate) fn condition(&self) -> Condition {
        self.shelf.as_ref().map_or(Condition::Whole, |shelf| shelf.lock().condition())
    }

    /// Gives the request its body back, and says whether it has it. The copy is broken off then, should it still be on its way, so do this
    /// only if the request is to be sent again.
    pub(crate) fn back(&self, request: &mut Request) -> bool {
        let Some(shelf) = &self.shelf else {
            return true;
        };
        let body = shelf.lock().body.take();
        let is_whole = body.is_some();
        *request.body_mut() = body;
        is_whole
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

impl Shelved {
    fn condition(&self) -> Condition {
        match (&self.body, self.broke) {
            (Some(_), _) => Condition::Whole,
            (None, false) => Condition::Begun,
            (None, true) => Condition::Broke,
        }
    }
}

/// Holds a body until somebody asks for its first frame. The lock is held for moments, and by two at most.
#[derive(Clone)]
pub(crate) struct Shelf(Arc<Mutex<Shelved>>);

impl Shelf {
    fn lock(&self) -> MutexGuard<'_, Shelved> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A body that stays on the shelf until it is polled, and is as long as it. If it was taken back by then it breaks off: as an empty one, the
/// server would take it for whole.
struct Lent {
    shelf: Shelf,
    body: Option<Body>,
}

impl http_body::Body for Lent {
    type Data = <Body as http_body::Body>::Data;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        if self.body.is_none() {
            let taken = self.shelf.lock().body.take();
            self.body = taken;
        }
        let Some(body) = &mut self.body else {
            return Poll::Ready(Some(Err("the request was taken back".into())));
        };
        let frame = ready!(Pin::new(body).poll_frame(cx));
        if matches!(frame, Some(Err(_))) {
            self.shelf.lock().broke = true;
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Some(body) => body.is_end_stream(),
            None => self.shelf.lock().body.as_ref().is_some_and(Body::is_end_stream),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Some(body) => body.size_hint(),
            None => self.shelf.lock().body.as_ref().map_or_else(SizeHint::default, Body::size_hint),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};
    use hyper::body::Bytes;

    use super::*;

    fn request() -> Request {
        let mut request = Request::new(reqwest::Method::POST, "http://orders/".parse().unwrap());
        *request.body_mut() = Some(Body::wrap(Full::new(Bytes::from("whole"))));
        request
    }

    #[tokio::test]
    async fn a_body_is_lent_and_comes_back() {
        let mut request = request();
        let (copy, loan) = Loan::of(&mut request);
        assert!(request.body().is_none() && loan.condition() == Condition::Whole);
        drop(copy);
        assert!(loan.back(&mut request));
        assert_eq!(request.body_mut().take().unwrap().collect().await.unwrap().to_bytes(), "whole");
    }

    #[tokio::test]
    async fn a_body_that_is_not_taken_back_is_sent() {
        let mut request = request();
        let (mut copy, loan) = Loan::of(&mut request);
        let body = copy.body_mut().take().unwrap();
        assert_eq!(http_body::Body::size_hint(&body).exact(), Some(5));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "whole");
        assert!(loan.condition() == Condition::Begun && !loan.back(&mut request));
    }

    #[tokio::test]
    async fn the_copy_of_a_body_that_was_taken_back_is_not_taken_for_an_empty_one() {
        let mut request = request();
        let (mut copy, loan) = Loan::of(&mut request);
        assert!(loan.back(&mut request));
        let body = copy.body_mut().take().unwrap();
        assert!(!http_body::Body::is_end_stream(&body) && http_body::Body::size_hint(&body).exact().is_none());
        assert!(body.collect().await.is_err());
    }
}
