//! Modes in which connections are reset.

use std::io;

use discovery_harness::eventually;
use tokio::net::{TcpListener, TcpStream};

use crate::network::{Echo, SOON, assert_reset, dial, network, round_trip};

async fn assert_refused(address: &str) {
    let outcome = TcpStream::connect(address).await.map_err(|error| error.kind());
    assert!(matches!(outcome, Err(io::ErrorKind::ConnectionRefused)), "not refused: {outcome:?}");
}

#[tokio::test]
async fn cut_resets_and_refuses_until_pass() -> io::Result<()> {
    let (_echo, proxy) = network().await?;
    let mut client = dial(&proxy).await?;
    round_trip(&mut client, "before").await?;
    for _ in 0..10 {
        proxy.cut().await;
        assert_eq!(proxy.open(), 0);
        assert_refused(&proxy.address()).await;
        assert_reset(&mut client).await;
        assert_refused(&proxy.address()).await;

        proxy.pass().await?;
        client = dial(&proxy).await?;
        round_trip(&mut client, "again").await?;
    }
    assert_eq!(proxy.connects(), 11);
    Ok(())
}

#[tokio::test]
async fn cut_resets_a_connection_that_the_proxy_has_not_seen() -> io::Result<()> {
    let (_echo, proxy) = network().await?;
    let mut client = dial(&proxy).await?;
    proxy.cut().await;
    assert_reset(&mut client).await;
    assert_eq!(proxy.open(), 0);
    Ok(())
}

#[tokio::test]
async fn cut_reaches_the_server_too() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let proxy = discovery_harness::Proxy::start(listener.local_addr()?).await?;
    let _client = dial(&proxy).await?;
    let (mut server, _) = listener.accept().await?;
    proxy.cut().await;
    assert_reset(&mut server).await;
    Ok(())
}

#[tokio::test]
async fn cut_counting_accepts_counts_and_resets() -> io::Result<()> {
    let (_echo, proxy) = network().await?;
    let mut client = dial(&proxy).await?;
    round_trip(&mut client, "before").await?;
    proxy.cut_counting().await?;
    assert_reset(&mut client).await;
    for _ in 0..5 {
        assert_reset(&mut dial(&proxy).await?).await;
    }
    assert_eq!((proxy.connects(), proxy.open()), (6, 0));
    assert_eq!(proxy.connect_times().len(), 6);
    proxy.pass().await?;
    round_trip(&mut dial(&proxy).await?, "after").await
}

#[tokio::test]
async fn every_mode_listens_again_after_a_cut() -> io::Result<()> {
    let (_echo, proxy) = network().await?;
    proxy.cut().await;
    proxy.cut_counting().await?;
    assert_reset(&mut dial(&proxy).await?).await;
    proxy.cut().await;
    proxy.freeze_open().await?;
    round_trip(&mut dial(&proxy).await?, "passes").await?;
    proxy.cut().await;
    proxy.freeze().await?;
    let mut frozen = dial(&proxy).await?;
    eventually(SOON, "a frozen connection", async || proxy.open() == 1).await;
    proxy.cut().await;
    assert_reset(&mut frozen).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cuts_under_load_leave_nothing_behind() -> io::Result<()> {
    let echo = Echo::start().await?;
    let proxy = discovery_harness::Proxy::start(echo.address).await?;
    let address = proxy.address();
    let clients: Vec<_> = (0..20)
        .map(|_| {
            let address = address.clone();
            tokio::spawn(async move {
                loop {
                    if let Ok(mut client) = TcpStream::connect(&address).await {
                        while round_trip(&mut client, "ping").await.is_ok() {}
                    }
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for _ in 0..20 {
        let passed = proxy.bytes_down();
        eventually(SOON, "bytes on the move", async || proxy.bytes_down() > passed).await;
        proxy.cut().await;
        assert_eq!(proxy.open(), 0);
        let (passed, connects) = (proxy.bytes_down(), proxy.connects());
        assert_refused(&address).await;
        assert_eq!((proxy.bytes_down(), proxy.connects()), (passed, connects));
        proxy.pass().await?;
    }
    clients.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(())
}
