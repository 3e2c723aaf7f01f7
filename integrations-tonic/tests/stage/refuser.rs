//! A server that refuses every stream unseen.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use h2::Reason;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

pub(crate) struct Refuser {
    address: SocketAddr,
    refused: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Refuser {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, refused) = (listener.local_addr().unwrap(), Arc::<AtomicUsize>::default());
        let mut tasks = JoinSet::new();
        let count = refused.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let count = count.clone();
                connections.spawn(async move {
                    let mut connection = h2::server::handshake(stream).await.unwrap();
                    while let Some(Ok((_, mut answer))) = connection.accept().await {
                        count.fetch_add(1, Ordering::SeqCst);
                        answer.send_reset(Reason::REFUSED_STREAM);
                    }
                });
            }
        });
        Self { address, refused, _tasks: tasks }
    }

    pub(crate) fn url(&self) -> String {
        format!("grpc://{}", self.address)
    }

    pub(crate) fn refused(&self) -> usize {
        self.refused.load(Ordering::SeqCst)
    }
}
