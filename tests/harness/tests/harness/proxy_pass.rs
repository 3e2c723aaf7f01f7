//! What passes, and what is counted.

use std::{
    io,
    time::{Duration, Instant},
};

use discovery_harness::{Proxy, eventually, free_port};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    time::timeout,
};

use crate::network::{SOON, assert_reset, dial, expect, network, round_trip};

#[tokio::test]
async fn passes_and_counts() -> io::Result<()> {
    let (_echo, proxy) = network().await?;
    let before = Instant::now();
    let mut first = dial(&proxy).await?;
    round_trip(&mut first, "one").await?;
    let mut second = dial(&proxy).await?;
    round_trip(&mut second, "three").await?;

    assert_eq!((proxy.connects(), proxy.open()), (2, 2));
    assert_eq!((proxy.bytes_up(), proxy.bytes_down()), (8, 8));
    let times = proxy.connect_times();
    assert!(matches!(times[..], [a, b] if before < a && a < b && b < Instant::now()), "{times:?}");

    drop(first);
    eventually(SOON, "one open connection", async || proxy.open() == 1).await;
    assert_eq!(proxy.connects(), 2);
    Ok(())
}

#[tokio::test]
async fn a_megabyte_arrives_whole() -> io::Result<()> {
    let (_echo, proxy) = network().await?;
    let client = dial(&proxy).await?;
    let sent: Vec<u8> = (0..4_000_000_u32).map(|n| n.to_be_bytes()[(n % 4) as usize]).collect();
    let (mut from, mut to) = client.into_split();
    let mut received = Vec::new();
    let (written, read) = timeout(SOON, async {
        let write = async {
            to.write_all(&sent).await?;
            to.shutdown().await
        };
        tokio::join!(write, from.read_to_end(&mut received))
    })
    .await?;
    written?;
    read?;
    assert!(received == sent, "{} bytes came back of {}", received.len(), sent.len());
    assert_eq!((proxy.bytes_up(), proxy.bytes_down()), (4_000_000, 4_000_000));
    Ok(())
}

#[tokio::test]
async fn a_half_close_passes_and_the_other_half_goes_on() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let proxy = Proxy::start(listener.local_addr()?).await?;
    let mut client = dial(&proxy).await?;
    client.write_all(b"question").await?;
    client.shutdown().await?;

    let (mut server, _) = timeout(SOON, listener.accept()).await??;
    let mut question = String::new();
    timeout(SOON, server.read_to_string(&mut question)).await??;
    assert_eq!(question, "question");
    server.write_all(b"answer").await?;
    drop(server);
    let mut answer = String::new();
    timeout(SOON, client.read_to_string(&mut answer)).await??;
    assert_eq!(answer, "answer");
    Ok(())
}

#[tokio::test]
async fn a_reset_by_the_client_reaches_the_server() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let proxy = Proxy::start(listener.local_addr()?).await?;
    let client = dial(&proxy).await?;
    let (mut server, _) = timeout(SOON, listener.accept()).await??;
    // Bytes that nobody has read make the kernel reset the connection when it is closed.
    server.write_all(b"unread").await?;
    timeout(SOON, client.readable()).await??;
    drop(client);
    assert_reset(&mut server).await;
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_down_resets_the_client() -> io::Result<()> {
    let nobody = free_port()?;
    let proxy = Proxy::start(nobody.address()).await?;
    let mut client = dial(&proxy).await?;
    assert_reset(&mut client).await;
    eventually(SOON, "no open connection", async || proxy.open() == 0).await;
    assert_eq!(proxy.connects(), 1);
    Ok(())
}

#[tokio::test]
async fn delay_holds_each_chunk_and_keeps_their_order() -> io::Result<()> {
    const DELAY: Duration = Duration::from_millis(300);
    let (_echo, proxy) = network().await?;
    let mut client = dial(&proxy).await?;
    round_trip(&mut client, "fast").await?;

    proxy.delay(DELAY).await?;
    let start = Instant::now();
    for chunk in 0..10 {
        client.write_all(&[b'0' + chunk]).await?;
        // Gives the proxy time to read each as a chunk of its own.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    expect(&mut client, "0123456789").await?;
    let took = start.elapsed();
    assert!((2 * DELAY..10 * DELAY).contains(&took), "there and back took {took:?}");

    proxy.delay(Duration::from_secs(3600)).await?;
    client.write_all(b"stuck").await?;
    proxy.pass().await?;
    expect(&mut client, "stuck").await
}

#[tokio::test]
async fn dropping_the_proxy_ends_everything() -> io::Result<()> {
    let (_echo, proxy) = network().await?;
    let mut client = dial(&proxy).await?;
    round_trip(&mut client, "here").await?;
    let address = proxy.socket_address();
    drop(proxy);
    assert_reset(&mut client).await;
    eventually(SOON, "refused", async || tokio::net::TcpStream::connect(address).await.is_err()).await;
    Ok(())
}
