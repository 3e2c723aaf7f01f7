//! A request's body that can be sent again, as long as it is small.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use tokio::sync::Notify;
use tonic::Status;
use tonic::body::Body;

/// One body for several attempts. What an attempt reads first is kept for the next, up to the limit; beyond it there is no next.
pub(super) struct Replay {
    shared: Arc<Mutex<Shared>>,
    /// Told once all of it was read.
    completion: Arc<Notify>,
}

struct Shared {
    source: Body,
    kept: Vec<Kept>,
    size: usize,
    limit: usize,
    state: State,
    /// Which attempt reads on; those before it have ended.
    reader: usize,
    completion: Arc<Notify>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// All of it is kept.
    Complete,
    /// More than can be kept was read, or reading it failed.
    Lost,
}

#[derive(Clone)]
enum Kept {
    Data(Bytes),
    Trailers(HeaderMap),
}

impl Kept {
    fn frame(self) -> Frame<Bytes> {
        match self {
            Self::Data(data) => Frame::data(data),
            Self::Trailers(trailers) => Frame::trailers(trailers),
        }
    }
}

impl Replay {
    pub(super) fn new(source: Body, limit: usize) -> Self {
        let completion = Arc::<Notify>::default();
        let kept = Vec::new();
        let shared =
            Shared { source, kept, size: 0, limit, state: State::Open, reader: 0, completion: completion.clone() };
        Self { shared: Arc::new(Mutex::new(shared)), completion }
    }

    /// The body of the next attempt, from its beginning; `None` once it cannot be sent again. Unless the body is complete, attempts before
    /// this one end.
    pub(super) fn attempt(&self) -> Option<Body> {
        let number = {
            let mut shared = lock(&self.shared);
            if shared.state == State::Lost {
                return None;
            }
            shared.reader += 1;
            shared.reader
        };
        // It is asked for its end at once, so the lock is given back before.
        Some(Body::new(Attempt { shared: self.shared.clone(), number, at: 0 }))
    }

    /// Whether it can be sent again.
    pub(super) fn is_kept(&self) -> bool {
        lock(&self.shared).state != State::Lost
    }

    /// Waits until all of it was read and kept, so that several attempts can be made at once. For ever, if that never happens.
    pub(super) async fn completed(&self) {
        loop {
            let told = self.completion.notified();
            if lock(&self.shared).state == State::Complete {
                return;
            }
            told.await;
        }
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Attempt {
    shared: Arc<Mutex<Shared>>,
    number: usize,
    /// How many of the kept frames it has read.
    at: usize,
}

impl Shared {
    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(http_body::Body::poll_frame(Pin::new(&mut self.source), cx));
        match &frame {
            Some(Ok(frame)) => {
                let kept = match (frame.data_ref(), frame.trailers_ref()) {
                    (Some(data), _) => Some(Kept::Data(data.clone())),
                    (_, Some(trailers)) => Some(Kept::Trailers(trailers.clone())),
                    _ => None,
                };
                self.size += frame.data_ref().map_or(0, Bytes::len);
                match kept {
                    Some(kept) if self.state == State::Open && self.size <= self.limit => self.kept.push(kept),
                    _ => self.lose(),
                }
                if self.state == State::Open && http_body::Body::is_end_stream(&self.source) {
                    self.complete();
                }
            }
            Some(Err(_)) => self.lose(),
            None if self.state == State::Open => self.complete(),
            None => {}
        }
        Poll::Ready(frame)
    }

    fn complete(&mut self) {
        self.state = State::Complete;
        self.completion.notify_waiters();
    }

    fn lose(&mut self) {
        self.state = State::Lost;
        self.kept = Vec::new();
    }
}

impl http_body::Body for Attempt {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let shared = self.shared.clone();
        let mut shared = lock(&shared);
        if let Some(kept) = shared.kept.get(self.at) {
            self.at += 1;
            return Poll::Ready(Some(Ok(kept.clone().frame())));
        }
        if shared.state == State::Complete {
            return Poll::Ready(None);
        }
        if self.number != shared.reader {
            return Poll::Ready(Some(Err(Status::cancelled("the request is being sent again"))));
        }
        let polled = shared.poll_source(cx);
        if let Poll::Ready(Some(Ok(_))) = &polled {
            self.at += 1;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        let shared = lock(&self.shared);
        let has_read_all = self.at >= shared.kept.len();
        has_read_all && (shared.state == State::Complete || http_body::Body::is_end_stream(&shared.source))
    }

    fn size_hint(&self) -> SizeHint {
        let shared = lock(&self.shared);
        let unread = shared.kept.get(self.at..).unwrap_or_default().iter().map(|kept| match kept {
            Kept::Data(data) => data.len() as u64,
            Kept::Trailers(_) => 0,
        });
        let (unread, rest) = (unread.sum::<u64>(), http_body::Body::size_hint(&shared.source));
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(unread));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(unread));
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt, StreamExt};
    use std::future::poll_fn;

    /// A body of these frames.
    fn body(frames: &'static [&'static str]) -> Body {
        struct Frames(std::slice::Iter<'static, &'static str>);
        impl http_body::Body for Frames {
            type Data = Bytes;
            type Error = Status;
            fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
                Poll::Ready(self.0.next().map(|text| Ok(Frame::data(Bytes::from_static(text.as_bytes())))))
            }
        }
        Body::new(Frames(frames.iter()))
    }

    async fn next(body: &mut Body) -> Option<Result<String, Status>> {
        let frame = poll_fn(|cx| http_body::Body::poll_frame(Pin::new(&mut *body), cx)).await?;
        Some(frame.map(|frame| String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()))
    }

    async fn all(body: Body) -> Vec<String> {
        let texts = futures_util::stream::unfold(body, |mut body| async {
            let text = next(&mut body).await?;
            Some((text.unwrap(), body))
        });
        texts.collect().await
    }

    #[tokio::test]
    async fn what_was_read_is_read_again_and_the_rest_once() {
        let replay = Replay::new(body(&["a", "b", "c"]), 10);
        let mut first = replay.attempt().unwrap();
        assert_eq!(next(&mut first).await.unwrap().unwrap(), "a");
        assert!(replay.completed().now_or_never().is_none());
        let second = replay.attempt().unwrap();
        // Only the newest reads on.
        assert!(next(&mut first).await.unwrap().is_err());
        assert_eq!(all(second).await, ["a", "b", "c"]);
        replay.completed().await;
        let (third, fourth) = (replay.attempt().unwrap(), replay.attempt().unwrap());
        assert_eq!(all(third).await, ["a", "b", "c"]);
        assert_eq!(all(fourth).await, ["a", "b", "c"]);
    }

    #[tokio::test]
    async fn what_is_too_large_is_sent_once() {
        let replay = Replay::new(body(&["aaa", "bbb", "ccc"]), 5);
        let mut first = replay.attempt().unwrap();
        assert_eq!(next(&mut first).await.unwrap().unwrap(), "aaa");
        assert_eq!(next(&mut first).await.unwrap().unwrap(), "bbb");
        assert!(replay.attempt().is_none());
        assert_eq!(all(first).await, ["ccc"]);
        assert!(replay.attempt().is_none());
    }

    #[tokio::test]
    async fn an_empty_body_is_complete_once_it_was_read() {
        let replay = Replay::new(body(&[]), 0);
        assert!(all(replay.attempt().unwrap()).await.is_empty());
        replay.completed().await;
    }
}
