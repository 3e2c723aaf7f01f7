//! An etcd server does what the test makes it do.

use std::{io, time::Duration};

use discovery_harness::{Etcd, EtcdOptions, Proxy, eventually, skip_unless_available};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::network::{SOON, WHILE};

async fn value(etcd: &Etcd, key: &str) -> io::Result<String> {
    Ok(etcd.ctl(&["get", key, "--print-value-only"]).await?.trim_end().to_owned())
}

#[tokio::test]
async fn keeps_data_through_stop_and_crash_and_loses_them_when_emptied() -> io::Result<()> {
    skip_unless_available!("etcd", "etcdctl");
    let etcd = Etcd::start().await?;
    let (address, pid) = (etcd.address(), etcd.pid());
    etcd.ctl(&["put", "key", "one"]).await?;
    assert_eq!(etcd.start_again().await.map_err(|error| error.kind()), Err(io::ErrorKind::AlreadyExists));

    etcd.stop().await?;
    assert!(!etcd.is_running());
    etcd.stop().await?;
    etcd.start_again().await?;
    assert_eq!(value(&etcd, "key").await?, "one");
    assert_eq!(etcd.address(), address);
    assert_ne!(etcd.pid(), pid);

    etcd.ctl(&["put", "key", "two"]).await?;
    etcd.kill()?;
    assert!(!etcd.is_running());
    etcd.start_again().await?;
    assert_eq!(value(&etcd, "key").await?, "two");

    etcd.kill()?;
    etcd.start_empty().await?;
    assert_eq!(value(&etcd, "key").await?, "");
    Ok(())
}

#[tokio::test]
async fn a_backup_brings_back_what_was() -> io::Result<()> {
    skip_unless_available!("etcd", "etcdctl");
    let etcd = Etcd::start().await?;
    etcd.ctl(&["put", "key", "one"]).await?;
    assert_eq!(etcd.back_up().map(drop).map_err(|error| error.kind()), Err(io::ErrorKind::AlreadyExists));
    etcd.kill()?;
    let backup = etcd.back_up()?;
    for _ in 0..2 {
        etcd.start_again().await?;
        etcd.ctl(&["put", "key", "two"]).await?;
        etcd.kill()?;
        etcd.start_from(&backup).await?;
        assert_eq!(value(&etcd, "key").await?, "one");
        etcd.kill()?;
    }
    Ok(())
}

#[tokio::test]
async fn a_frozen_server_answers_again_after_thawing() -> io::Result<()> {
    skip_unless_available!("etcd", "etcdctl");
    let etcd = Etcd::start().await?;
    etcd.freeze()?;
    assert!(etcd.is_running());
    let held = timeout(Duration::from_millis(500), etcd.ctl(&["put", "key", "held"])).await;
    assert!(held.is_err(), "a frozen server answered: {held:?}");
    etcd.thaw()?;
    eventually(SOON, "an answer", async || etcd.ctl(&["put", "key", "thawed"]).await).await;
    assert_eq!(value(&etcd, "key").await?, "thawed");

    etcd.freeze()?;
    etcd.stop().await?;
    etcd.start_again().await?;
    assert_eq!(value(&etcd, "key").await?, "thawed");
    Ok(())
}

#[tokio::test]
async fn takes_long_values_from_stdin() -> io::Result<()> {
    skip_unless_available!("etcd", "etcdctl");
    let etcd = Etcd::start().await?;
    let long = "x".repeat(1_400_000);
    etcd.ctl_stdin(&["put", "key"], long.as_bytes()).await?;
    assert!(value(&etcd, "key").await? == long);
    Ok(())
}

#[tokio::test]
async fn reports_what_etcdctl_says() -> io::Result<()> {
    skip_unless_available!("etcd", "etcdctl");
    let etcd = Etcd::start().await?;
    let error = etcd.ctl(&["lease", "revoke", "1234"]).await.map_err(|error| error.to_string());
    assert!(error.as_ref().is_err_and(|error| error.contains("requested lease not found")), "{error:?}");
    Ok(())
}

#[tokio::test]
async fn a_failed_start_shows_the_log() -> io::Result<()> {
    skip_unless_available!("etcd");
    let outcome = Etcd::start_with(EtcdOptions::default().with_args(["--no-such-flag"])).await;
    let error = outcome.map(drop).map_err(|error| error.to_string());
    assert!(error.as_ref().is_err_and(|error| error.contains("no-such-flag")), "{error:?}");
    Ok(())
}

#[tokio::test]
async fn a_full_server_starts_again() -> io::Result<()> {
    skip_unless_available!("etcd", "etcdctl");
    let options =
        EtcdOptions::default().with_args(["--quota-backend-bytes", "1000000"]).with_env("ETCD_MAX_TXN_OPS", "64");
    let etcd = Etcd::start_with(options).await?;
    let block = vec![b'x'; 400_000];
    while etcd.ctl_stdin(&["put", "block"], &block).await.is_ok() {}
    assert!(etcd.ctl(&["alarm", "list"]).await?.contains("NOSPACE"));
    etcd.stop().await?;
    etcd.start_again().await?;
    assert!(etcd.ctl(&["put", "key", "value"]).await.is_err());
    Ok(())
}

#[tokio::test]
async fn works_through_the_proxy() -> io::Result<()> {
    skip_unless_available!("etcd", "etcdctl");
    let etcd = Etcd::start().await?;
    let proxy = Proxy::start(etcd.socket_address()).await?;
    let version = async || -> io::Result<String> {
        let mut client = TcpStream::connect(proxy.address()).await?;
        client.write_all(b"GET /version HTTP/1.0\r\n\r\n").await?;
        let mut answer = String::new();
        client.read_to_string(&mut answer).await?;
        Ok(answer)
    };
    assert!(version().await?.contains("etcdserver"));
    proxy.freeze().await?;
    let frozen = timeout(WHILE, version()).await;
    assert!(frozen.is_err(), "{frozen:?}");
    proxy.pass().await?;
    assert!(version().await?.contains("etcdserver"));
    Ok(())
}

#[tokio::test]
async fn ten_servers_start_side_by_side() -> io::Result<()> {
    skip_unless_available!("etcd");
    let mut starts = tokio::task::JoinSet::new();
    for _ in 0..10 {
        starts.spawn(Etcd::start());
    }
    let mut servers = Vec::new();
    while let Some(started) = starts.join_next().await {
        servers.push(started??);
    }
    assert!(servers.iter().all(Etcd::is_running));
    Ok(())
}
