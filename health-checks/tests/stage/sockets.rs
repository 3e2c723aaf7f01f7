//! Servers in this process, on loopback.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::service::Routes;

/// Answers every HTTP/1.1 request with the same bytes, and notes the last request. Ends with this value.
pub(crate) struct HttpServer {
    pub(crate) address: SocketAddr,
    answer: Arc<Mutex<String>>,
    request: Arc<Mutex<String>>,
    _tasks: JoinSet<()>,
}

impl HttpServer {
    pub(crate) async fn start(answer: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (answer, request) = (Arc::new(Mutex::new(answer.to_owned())), Arc::new(Mutex::new(String::new())));
        let mut tasks = JoinSet::new();
        let (answers, requests) = (answer.clone(), request.clone());
        tasks.spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(converse(stream, answers.clone(), requests.clone()));
            }
        });
        Self { address, answer, request, _tasks: tasks }
    }

    /// Answers with a status from now on.
    pub(crate) fn status(&self, status: &str) {
        *self.answer.lock().unwrap() = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
    }

    /// The head of the last request.
    pub(crate) fn request(&self) -> String {
        self.request.lock().unwrap().clone()
    }
}

async fn converse(mut stream: TcpStream, answer: Arc<Mutex<String>>, request: Arc<Mutex<String>>) {
    let (mut head, mut buffer) = (String::new(), [0; 1024]);
    while !head.contains("\r\n\r\n") {
        match stream.read(&mut buffer).await {
            // A client of another protocol may send anything, and leave.
            Ok(0) | Err(_) => return,
            Ok(count) => head.push_str(&String::from_utf8_lossy(&buffer[..count])),
        }
    }
    *request.lock().unwrap() = head;
    let answer = answer.lock().unwrap().clone();
    // A client that does not wait for the answer is none of the server's failures.
    let _ = stream.write_all(answer.as_bytes()).await;
}

/// Serves gRPC until the set is dropped.
pub(crate) async fn serve(routes: Routes) -> (SocketAddr, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let incoming = TcpListenerStream::new(listener);
        tonic::transport::Server::builder().add_routes(routes).serve_with_incoming(incoming).await.unwrap();
    });
    (address, tasks)
}
