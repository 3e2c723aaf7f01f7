//! A tiny server and client at the two ends of a proxy.

use std::{io, net::SocketAddr, time::Duration};

use discovery_harness::Proxy;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};

/// Ample for anything that is to happen at once.
pub(crate) const SOON: Duration = Duration::from_secs(5);

/// How long something is watched that must not happen.
pub(crate) const WHILE: Duration = Duration::from_millis(150);

/// A server that sends back whatever it receives.
pub(crate) struct Echo {
    pub(crate) address: SocketAddr,
    _task: JoinSet<()>,
}

impl Echo {
    pub(crate) async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut clients = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                clients.spawn(async move {
                    let (mut from, mut to) = client.split();
                    tokio::io::copy(&mut from, &mut to).await
                });
            }
        });
        Ok(Self { address, _task: task })
    }
}

/// An echo server behind a proxy.
pub(crate) async fn network() -> io::Result<(Echo, Proxy)> {
    let echo = Echo::start().await?;
    let proxy = Proxy::start(echo.address).await?;
    Ok((echo, proxy))
}

pub(crate) async fn dial(proxy: &Proxy) -> io::Result<TcpStream> {
    timeout(SOON, TcpStream::connect(proxy.address())).await?
}

/// Sends `words` and waits until they have come back.
pub(crate) async fn round_trip(client: &mut TcpStream, words: &str) -> io::Result<()> {
    client.write_all(words.as_bytes()).await?;
    expect(client, words).await
}

/// Waits for `words`, and nothing else.
pub(crate) async fn expect(client: &mut TcpStream, words: &str) -> io::Result<()> {
    let mut answer = vec![0; words.len()];
    timeout(SOON, client.read_exact(&mut answer)).await??;
    assert_eq!(String::from_utf8_lossy(&answer), words);
    Ok(())
}

/// Checks that nothing comes, neither bytes nor an end.
pub(crate) async fn assert_silent(client: &mut TcpStream) {
    let came = timeout(WHILE, client.read(&mut [0; 64])).await;
    assert!(came.is_err(), "something came: {came:?}");
}

/// Checks that the connection has been or is reset.
pub(crate) async fn assert_reset(client: &mut TcpStream) {
    let end = timeout(SOON, client.read(&mut [0; 64])).await.map(|end| end.map_err(|error| error.kind()));
    assert!(matches!(end, Ok(Err(io::ErrorKind::ConnectionReset))), "not a reset: {end:?}");
}
