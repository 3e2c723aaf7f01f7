//! Modes in which connections stay open and bytes do not pass.

use std::io;

use discovery_harness::{Proxy, eventually};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    time::timeout,
};

use crate::network::{SOON, WHILE, assert_reset, assert_silent, dial, expect, network, round_trip};

#[tokio::test]
async fn freeze_holds_old_and_new_connections_until_pass() -> io::Result<()> {
    let (_echo, proxy) = network().await?;
    let mut old = dial(&proxy).await?;
    round_trip(&mut old, "before").await?;

    proxy.freeze().await?;
    let mut new = dial(&proxy).await?;
    old.write_all(b"old").await?;
    new.write_all(b"new").await?;
    assert_silent(&mut old).await;
    assert_silent(&mut new).await;
    assert_eq!((proxy.bytes_up(), proxy.bytes_down()), (6, 6));
    assert_eq!((proxy.connects(), proxy.open()), (2, 2));

    proxy.pass().await?;
    expect(&mut old, "old").await?;
    expect(&mut new, "new").await
}

#[tokio::test]
async fn freeze_holds_ends_back_and_sees_clients_leave() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let proxy = Proxy::start(listener.local_addr()?).await?;
    let leaving = dial(&proxy).await?;
    let (mut deserted, _) = timeout(SOON, listener.accept()).await??;
    let mut staying = dial(&proxy).await?;
    let (ended, _) = timeout(SOON, listener.accept()).await??;

    proxy.freeze().await?;
    drop((leaving, ended));
    eventually(SOON, "one open connection", async || proxy.open() == 1).await;
    assert_silent(&mut staying).await;
    assert_silent(&mut deserted).await;

    proxy.pass().await?;
    assert_eq!(timeout(SOON, staying.read(&mut [0; 8])).await??, 0);
    assert_eq!(timeout(SOON, deserted.read(&mut [0; 8])).await??, 0);
    Ok(())
}

#[tokio::test]
async fn freeze_does_not_dial_the_server() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let proxy = Proxy::start(listener.local_addr()?).await?;
    proxy.freeze().await?;
    let _client = dial(&proxy).await?;
    assert!(timeout(WHILE, listener.accept()).await.is_err());
    proxy.pass().await?;
    timeout(SOON, listener.accept()).await??;
    Ok(())
}

#[tokio::test]
async fn freeze_open_holds_old_connections_for_ever_and_passes_new_ones() -> io::Result<()> {
    let (_echo, proxy) = network().await?;
    let mut used = dial(&proxy).await?;
    round_trip(&mut used, "before").await?;
    // The runtime has had no chance yet to see this one, and still it was made before.
    let mut fresh = dial(&proxy).await?;
    proxy.freeze_open().await?;

    let mut new = dial(&proxy).await?;
    used.write_all(b"used").await?;
    fresh.write_all(b"fresh").await?;
    round_trip(&mut new, "new").await?;
    assert_silent(&mut used).await;
    assert_silent(&mut fresh).await;
    assert_eq!((proxy.connects(), proxy.open()), (3, 3));

    proxy.pass().await?;
    assert_silent(&mut used).await;
    assert_silent(&mut fresh).await;
    round_trip(&mut new, "still").await?;

    proxy.cut_counting().await?;
    assert_reset(&mut used).await;
    assert_reset(&mut fresh).await;
    assert_reset(&mut new).await;
    Ok(())
}

#[tokio::test]
async fn swallow_replies_lets_questions_through_only() -> io::Result<()> {
    let (_echo, proxy) = network().await?;
    let mut client = dial(&proxy).await?;
    round_trip(&mut client, "before").await?;

    proxy.swallow_replies().await?;
    client.write_all(b"lost").await?;
    eventually(SOON, "the question with the server", async || proxy.bytes_up() == 10).await;
    assert_silent(&mut client).await;
    assert_eq!(proxy.bytes_down(), 6);

    proxy.pass().await?;
    round_trip(&mut client, "after").await
}

#[tokio::test]
async fn swallow_replies_holds_the_end_of_a_reply_back() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let proxy = Proxy::start(listener.local_addr()?).await?;
    let mut client = dial(&proxy).await?;
    let (server, _) = timeout(SOON, listener.accept()).await??;
    proxy.swallow_replies().await?;
    drop(server);
    assert_silent(&mut client).await;
    // The server answers this with a reset, which must not come through either.
    client.write_all(b"anyone there?").await?;
    assert_silent(&mut client).await;
    client.write_all(b"hello?").await?;
    assert_silent(&mut client).await;
    proxy.pass().await?;
    let end = timeout(SOON, client.read(&mut [0; 8])).await?;
    assert!(matches!(&end, Ok(0)) || end.is_err(), "{end:?}");
    Ok(())
}

#[tokio::test]
async fn nothing_passes_once_freeze_has_returned() -> io::Result<()> {
    let (_echo, proxy) = network().await?;
    let client = dial(&proxy).await?;
    let (mut from, mut to) = client.into_split();
    let flood = tokio::spawn(async move { while to.write_all(&[7; 1000]).await.is_ok() {} });
    let drain = tokio::spawn(async move { tokio::io::copy(&mut from, &mut tokio::io::sink()).await });
    for _ in 0..20 {
        let passed = proxy.bytes_down();
        eventually(SOON, "bytes on the move", async || proxy.bytes_down() > passed).await;
        proxy.freeze().await?;
        let frozen = (proxy.bytes_up(), proxy.bytes_down());
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!((proxy.bytes_up(), proxy.bytes_down()), frozen);
        proxy.pass().await?;
    }
    flood.abort();
    drain.abort();
    Ok(())
}
