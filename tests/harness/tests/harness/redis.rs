//! A Redis server does what the test makes it do.

use std::{io, time::Duration};

use discovery_harness::{Redis, RedisCluster, RedisOptions, RedisSentinel, eventually, skip_unless_available};
use tokio::time::timeout;

use crate::network::SOON;

async fn value(redis: &Redis, key: &str) -> io::Result<String> {
    Ok(redis.cli(&["GET", key]).await?.trim_end().to_owned())
}

#[tokio::test]
async fn keeps_data_through_stop_and_crash_and_loses_them_when_emptied() -> io::Result<()> {
    skip_unless_available!("redis-server", "redis-cli");
    let redis = Redis::start().await?;
    let address = redis.address();
    redis.cli(&["SET", "key", "one"]).await?;
    assert_eq!(redis.start_again().await.map_err(|error| error.kind()), Err(io::ErrorKind::AlreadyExists));

    redis.stop().await?;
    assert!(!redis.is_running());
    redis.start_again().await?;
    assert_eq!((value(&redis, "key").await?, redis.address()), ("one".to_owned(), address));

    redis.cli(&["SET", "key", "two"]).await?;
    redis.kill()?;
    redis.start_again().await?;
    assert_eq!(value(&redis, "key").await?, "two");

    redis.kill()?;
    redis.start_empty().await?;
    assert_eq!(value(&redis, "key").await?, "");
    Ok(())
}

#[tokio::test]
async fn a_frozen_server_answers_again_after_thawing() -> io::Result<()> {
    skip_unless_available!("redis-server", "redis-cli");
    let redis = Redis::start().await?;
    redis.freeze()?;
    assert!(redis.is_running());
    let held = timeout(Duration::from_millis(500), redis.cli(&["SET", "key", "held"])).await;
    assert!(held.is_err(), "a frozen server answered: {held:?}");
    redis.thaw()?;
    eventually(SOON, "an answer", async || redis.cli(&["SET", "key", "thawed"]).await).await;
    assert_eq!(value(&redis, "key").await?, "thawed");
    Ok(())
}

#[tokio::test]
async fn reports_what_redis_cli_says() -> io::Result<()> {
    skip_unless_available!("redis-server", "redis-cli");
    let redis = Redis::start().await?;
    let error = redis.cli(&["LPUSH"]).await.map_err(|error| error.to_string());
    assert!(error.as_ref().is_err_and(|error| error.contains("wrong number of arguments")), "{error:?}");
    redis.cli_stdin(&["-x", "SET", "key"], b"from stdin").await?;
    assert_eq!(value(&redis, "key").await?, "from stdin");
    Ok(())
}

#[tokio::test]
async fn a_failed_start_shows_the_log() -> io::Result<()> {
    skip_unless_available!("redis-server");
    let outcome = Redis::start_with(RedisOptions::default().with_args(["--no-such-option", "yes"])).await;
    let error = outcome.map(drop).map_err(|error| error.to_string());
    assert!(error.as_ref().is_err_and(|error| error.contains("no-such-option")), "{error:?}");
    Ok(())
}

#[tokio::test]
async fn a_replica_takes_over_under_sentinels() -> io::Result<()> {
    skip_unless_available!("redis-server", "redis-sentinel", "redis-cli");
    let pair = RedisSentinel::start().await?;
    let [master, replica] = pair.servers();
    assert!(replica.cli(&["SET", "key", "value"]).await.is_err(), "the replica took a write");
    master.kill()?;
    eventually(Duration::from_secs(15), "a new master", async || replica.cli(&["SET", "key", "value"]).await).await;
    Ok(())
}

#[tokio::test]
async fn a_cluster_goes_on_without_a_master() -> io::Result<()> {
    skip_unless_available!("redis-server", "redis-cli");
    let (plain, replicated) = tokio::join!(RedisCluster::start(), RedisCluster::start_with_replicas());
    for (cluster, heals) in [(plain?, false), (replicated?, true)] {
        let lost = cluster.master_of("a").await?;
        let other = cluster.master_of("b").await?;
        assert_ne!(lost.address(), other.address());
        lost.kill()?;
        other.cli(&["SET", "b", "value"]).await?;
        if heals {
            eventually(Duration::from_secs(15), "a new master", async || {
                cluster.master_of("a").await.is_ok_and(|master| master.is_running())
            })
            .await;
        }
    }
    Ok(())
}
