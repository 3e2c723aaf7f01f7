//! A ZooKeeper server does what the test makes it do.

use std::io;
use std::net::SocketAddr;

use discovery_harness::{ZooKeeper, ZooKeeperEnsemble, ZooKeeperOptions, eventually};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::network::{SOON, WHILE};

/// Asks one of ZooKeeper's four-letter words.
async fn ask(server: SocketAddr, word: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(word.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// The number of the last transaction that the server has kept.
async fn zxid(server: &ZooKeeper) -> io::Result<String> {
    let answer = ask(server.socket_address(), "srvr").await?;
    Ok(answer.lines().find(|line| line.starts_with("Zxid")).unwrap_or_default().to_owned())
}

#[tokio::test]
async fn keeps_data_through_stop_and_crash_and_loses_them_when_emptied() -> io::Result<()> {
    if !ZooKeeper::available()? {
        return Ok(());
    }
    let server = ZooKeeper::start().await?;
    let (address, pid, empty) = (server.address(), server.pid(), zxid(&server).await?);
    // Nobody has the session 1. Asking for 0 opens a new one, and that is written down.
    assert!(!server.end_session(1).await?);
    assert_eq!(zxid(&server).await?, empty);
    assert!(server.end_session(0).await?);
    let written = zxid(&server).await?;
    assert_ne!(written, empty);
    assert_eq!(server.start_again().await.map_err(|error| error.kind()), Err(io::ErrorKind::AlreadyExists));

    server.stop().await?;
    assert!(!server.is_running());
    server.stop().await?;
    server.start_again().await?;
    assert_eq!(zxid(&server).await?, written);
    assert_eq!(server.address(), address);
    assert_ne!(server.pid(), pid);

    server.kill()?;
    assert!(!server.is_running());
    server.start_again().await?;
    assert_eq!(zxid(&server).await?, written);

    server.kill()?;
    server.start_empty().await?;
    assert_eq!(zxid(&server).await?, empty);
    Ok(())
}

#[tokio::test]
async fn a_frozen_server_answers_again_after_thawing() -> io::Result<()> {
    if !ZooKeeper::available()? {
        return Ok(());
    }
    let server = ZooKeeper::start().await?;
    server.freeze()?;
    let held = timeout(WHILE, ask(server.socket_address(), "ruok")).await;
    assert!(held.is_err(), "a frozen server answered: {held:?}");
    server.thaw()?;
    eventually(SOON, "an answer", async || ask(server.socket_address(), "ruok").await.is_ok()).await;
    server.freeze()?;
    server.stop().await
}

#[tokio::test]
async fn a_failed_start_shows_the_log() -> io::Result<()> {
    if !ZooKeeper::available()? {
        return Ok(());
    }
    let options = ZooKeeperOptions::default().with_lines(["tickTime=soon"]);
    let error = ZooKeeper::start_with(options).await.map(drop).map_err(|error| error.to_string());
    assert!(error.as_ref().is_err_and(|error| error.contains("soon")), "{error:?}");
    Ok(())
}

#[tokio::test]
async fn an_ensemble_goes_on_with_two_members() -> io::Result<()> {
    if !ZooKeeper::available()? {
        return Ok(());
    }
    let ensemble = ZooKeeperEnsemble::start().await?;
    let [lost, others @ ..] = ensemble.members() else { unreachable!("an ensemble has three members") };
    lost.kill()?;
    for member in others {
        eventually(SOON * 5, "a session", async || member.end_session(0).await.is_ok_and(|alive| alive)).await;
    }
    lost.start_again().await?;
    assert!(lost.end_session(0).await?);
    Ok(())
}
