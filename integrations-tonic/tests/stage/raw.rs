//! An HTTP/2 server that is written frame by frame, so that it can do what no library would.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use discovery_tonic::{Channel, ChannelBuilder};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{Stage, connected, within};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

/// Flags: of DATA and HEADERS that nothing follows, of PING and SETTINGS that they are answers, and of HEADERS that they are whole.
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// Settings.
pub(crate) const MAX_STREAMS: u16 = 3;
pub(crate) const WINDOW: u16 = 4;

/// Error codes.
pub(crate) const NO_ERROR: u32 = 0;
pub(crate) const REFUSED_STREAM: u32 = 7;
pub(crate) const CANCEL: u32 = 8;
pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;

/// The listener.
pub(crate) struct Raw {
    listener: TcpListener,
    address: SocketAddr,
}

impl Raw {
    pub(crate) async fn bind() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        Self { listener, address }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("grpc://{}", self.address)
    }

    /// The next connection, to which nothing was said.
    pub(crate) async fn accept_unspoken(&self) -> Wire {
        let (stream, _) = self.listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        Wire { stream, is_begun: false, kept: VecDeque::new(), answers_pings: true, pings: Arc::default() }
    }

    /// The next connection, greeted with these settings.
    pub(crate) async fn accept(&self, settings: &[(u16, u32)]) -> Wire {
        let mut wire = self.accept_unspoken().await;
        wire.settings(settings).await;
        wire
    }

    /// Greets each connection and serves it in a task of its own. Counts them.
    pub(crate) fn each<F>(self, serve: impl Fn(Wire) -> F + Send + 'static) -> Arc<AtomicUsize>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let accepted = Arc::<AtomicUsize>::default();
        let count = accepted.clone();
        tokio::spawn(async move {
            loop {
                let wire = self.accept(&[]).await;
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(wire));
            }
        });
        accepted
    }

    /// Refuses every stream unseen. Counts them.
    pub(crate) fn refuse(self) -> Arc<AtomicUsize> {
        let refused = Arc::<AtomicUsize>::default();
        let count = refused.clone();
        self.each(move |mut wire| {
            let count = count.clone();
            async move {
                while let Some(id) = wire.next_request().await {
                    count.fetch_add(1, Ordering::SeqCst);
                    wire.reset(id, REFUSED_STREAM).await;
                }
            }
        });
        refused
    }
}

/// One connection.
pub(crate) struct Wire {
    stream: TcpStream,
    /// The client's preface was read.
    is_begun: bool,
    /// What was read while something else was waited for.
    kept: VecDeque<Frame>,
    pub(crate) answers_pings: bool,
    /// How many pings came.
    pub(crate) pings: Arc<AtomicUsize>,
}

struct Frame {
    kind: u8,
    flags: u8,
    id: u32,
    payload: Vec<u8>,
}

impl Frame {
    fn is_last(&self) -> bool {
        matches!(self.kind, HEADERS | DATA) && self.flags & END_STREAM != 0
    }
}

impl Wire {
    /// Writes bytes. A client that is gone shows when it is read from.
    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    async fn send(&mut self, kind: u8, flags: u8, id: u32, payload: &[u8]) {
        let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(id.to_be_bytes());
        frame.extend(payload);
        self.write(&frame).await;
    }

    pub(crate) async fn settings(&mut self, settings: &[(u16, u32)]) {
        let pairs = settings.iter().map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat());
        let payload: Vec<u8> = pairs.flatten().collect();
        self.send(SETTINGS, 0, 0, &payload).await;
    }

    /// Says that streams after the last one are not looked at, with a reason for people.
    pub(crate) async fn goodbye(&mut self, last: u32, code: u32, reason: &str) {
        let payload = [&last.to_be_bytes(), &code.to_be_bytes(), reason.as_bytes()].concat();
        self.send(GOAWAY, 0, 0, &payload).await;
    }

    pub(crate) async fn reset(&mut self, id: u32, code: u32) {
        self.send(RST_STREAM, 0, id, &code.to_be_bytes()).await;
    }

    /// Lets the client send so many bytes more on a stream, or on all of them together if it is 0.
    pub(crate) async fn window(&mut self, id: u32, bytes: u32) {
        self.send(WINDOW_UPDATE, 0, id, &bytes.to_be_bytes()).await;
    }

    pub(crate) async fn head(&mut self, id: u32) {
        // `:status` 200 of HPACK's table, and `content-type` from there with a value.
        let block = [&[0x88, 0x5f, 16][..], b"application/grpc"].concat();
        self.send(HEADERS, END_HEADERS, id, &block).await;
    }

    /// An empty message.
    pub(crate) async fn message(&mut self, id: u32) {
        self.send(DATA, 0, id, &[0; 5]).await;
    }

    pub(crate) async fn trailers(&mut self, id: u32) {
        let block = [&[0, 11][..], b"grpc-status", &[1, b'0']].concat();
        self.send(HEADERS, END_HEADERS | END_STREAM, id, &block).await;
    }

    /// A whole answer.
    pub(crate) async fn answer(&mut self, id: u32) {
        self.head(id).await;
        self.message(id).await;
        self.trailers(id).await;
    }

    /// Reads a frame, and answers those of the connection itself. `None` at its end.
    async fn read(&mut self) -> Option<Frame> {
        if !std::mem::replace(&mut self.is_begun, true) {
            self.stream.read_exact(&mut [0; 24]).await.ok()?;
        }
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).await.ok()?;
        let [a, b, c, kind, flags, id @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.stream.read_exact(&mut payload).await.ok()?;
        match kind {
            SETTINGS if flags & ACK == 0 => self.send(SETTINGS, ACK, 0, &[]).await,
            PING if flags & ACK == 0 => {
                self.pings.fetch_add(1, Ordering::SeqCst);
                if self.answers_pings {
                    self.send(PING, ACK, 0, &payload).await;
                }
            }
            _ => {}
        }
        Some(Frame { kind, flags, id: u32::from_be_bytes(id), payload })
    }

    /// The next frame of this sort.
    async fn next(&mut self, is_it: impl Fn(&Frame) -> bool) -> Option<Frame> {
        loop {
            let frame = match self.kept.pop_front() {
                Some(frame) => frame,
                None => self.read().await?,
            };
            if is_it(&frame) {
                return Some(frame);
            }
        }
    }

    /// Returns once the client has read all that was sent, or is gone.
    pub(crate) async fn heard(&mut self) {
        self.send(PING, 0, 0, &[0; 8]).await;
        let read = async {
            while let Some(frame) = self.read().await {
                if frame.kind == PING && frame.flags & ACK != 0 {
                    break;
                }
                self.kept.push_back(frame);
            }
        };
        within("the client reads", read).await;
    }

    /// The id of the next stream.
    pub(crate) async fn opened(&mut self) -> u32 {
        within("a stream", self.next(|frame| frame.kind == HEADERS)).await.expect("the client closed").id
    }

    /// The id of the next stream whose request is whole.
    pub(crate) async fn request(&mut self) -> u32 {
        within("a request", self.next_request()).await.expect("the client closed")
    }

    /// The same, for servers that wait for ever; `None` if the client closes.
    pub(crate) async fn next_request(&mut self) -> Option<u32> {
        Some(self.next(Frame::is_last).await?.id)
    }

    /// The size of the next piece of a request, and whether it is the last.
    pub(crate) async fn piece(&mut self, id: u32) -> (usize, bool) {
        let piece = within("a piece", self.next(|frame| frame.kind == DATA && frame.id == id)).await;
        let piece = piece.expect("the client closed");
        (piece.payload.len(), piece.is_last())
    }

    /// Returns at the next ping; false if the client closes before.
    pub(crate) async fn pinged(&mut self) -> bool {
        self.next(|frame| frame.kind == PING).await.is_some()
    }

    /// Answers every request.
    pub(crate) async fn serve(mut self) {
        while let Some(id) = self.next_request().await {
            self.answer(id).await;
        }
    }

    /// Reads, and answers nothing, until the client closes.
    pub(crate) async fn drain(mut self) {
        while self.next(|_| true).await.is_some() {}
    }
}

/// A raw server under the id `raw`, and a channel with a connection to it.
pub(crate) async fn scene(settings: &[(u16, u32)]) -> (Stage, Raw, Channel, Wire) {
    scene_with(settings, |builder| builder).await
}

/// The same with a channel to one's taste.
pub(crate) async fn scene_with(
    settings: &[(u16, u32)],
    build: impl FnOnce(ChannelBuilder) -> ChannelBuilder,
) -> (Stage, Raw, Channel, Wire) {
    let (stage, raw) = (Stage::set(), Raw::bind().await);
    std::mem::forget(stage.register("raw", &raw.url()).await);
    let channel = build(stage.channel_builder()).build();
    let wire = within("the first dial", raw.accept(settings)).await;
    connected(&channel, 1).await;
    (stage, raw, channel, wire)
}
