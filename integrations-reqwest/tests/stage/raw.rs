//! A server that is told word by word what to answer, and keeps what it was sent.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The heads that came, in their order.
pub(crate) type Heads = Arc<Mutex<Vec<String>>>;

/// Answers each connection's one request by its head.
pub(crate) async fn raw(answer: impl Fn(&str) -> String + Send + 'static) -> (SocketAddr, Heads) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, heads) = (listener.local_addr().unwrap(), Heads::default());
    let seen = heads.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let head = head(&mut stream).await;
            let text = answer(&head);
            seen.lock().unwrap().push(head);
            // Whoever does not wait for the answer need not get it.
            let _ = stream.write_all(text.as_bytes()).await;
        }
    });
    (address, heads)
}

pub(crate) async fn head(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    let mut part = [0; 4096];
    while !all.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut part).await {
            Ok(0) | Err(_) => break,
            Ok(read) => all.extend_from_slice(&part[..read]),
        }
    }
    String::from_utf8_lossy(&all).into_owned()
}

/// The value of a header in a head.
pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

pub(crate) fn ok() -> String {
    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok".into()
}

pub(crate) fn unavailable() -> String {
    "HTTP/1.1 503 Closing\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".into()
}

pub(crate) fn redirect(location: &str) -> String {
    format!("HTTP/1.1 307 Elsewhere\r\nconnection: close\r\ncontent-length: 0\r\nlocation: {location}\r\n\r\n")
}
