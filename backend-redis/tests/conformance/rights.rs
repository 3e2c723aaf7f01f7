//! Accounts of `docs/rights.md`, and a password that changes.

use std::time::Duration;

use async_trait::async_trait;
use discovery_core::conformance::stays;
use discovery_core::{ErrorKind, RegisterOptions};
use discovery_harness::cases::{self, Operator, recipe};
use discovery_harness::{Redis, RedisCluster};

use crate::fixture::REDIS;

const TTL: Duration = Duration::from_secs(3);
const ROOT: [&str; 5] = ["--no-auth-warning", "--user", "root", "--pass", "root"];

/// A server with the accounts of the recipes and root's, and no other.
async fn guarded() -> Option<Redis> {
    if !Redis::available().expect("Redis, which CI requires") {
        return None;
    }
    let server = Redis::start().await.expect("a started Redis");
    for command in ["redis-reader", "redis-registrar"].iter().flat_map(|name| recipe(name)) {
        let words: Vec<_> = command.iter().skip(1).map(String::as_str).collect();
        assert_eq!(server.cli(&words).await.expect("a command of the recipe").trim(), "OK");
    }
    server.cli(&["ACL", "SETUSER", "root", "on", ">root", "~*", "&*", "+@all"]).await.expect("an account");
    server.cli(&["ACL", "SETUSER", "default", "off"]).await.expect("no default account");
    Some(server)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r01_r03_the_recipes_are_enough_and_least() {
    let Some(server) = guarded().await else { return };
    cases::the_recipes_are_enough_and_least(REDIS, server.socket_address(), "", TTL).await;
    // What the server itself refuses, whoever asks it.
    for (user, command) in [
        ("reader", &["SET", "{/discovery/pay}/x", "y"][..]),
        ("reader", &["DEL", "{/discovery/pay}/a"]),
        ("reader", &["PEXPIRE", "{/discovery/pay}/a", "1"]),
        ("reader", &["GETDEL", "{/discovery/pay}/a"]),
        ("reader", &["FLUSHALL"]),
        ("reader", &["CONFIG", "GET", "*"]),
        ("reader", &["ACL", "LIST"]),
        ("registrar", &["SET", "{/discovery/pay-v2}/x", "y"]),
        ("registrar", &["PUBLISH", "{/discovery/orders}:changes", "x"]),
        ("registrar", &["SET", "{/discovery/orders}/x", "y"]),
        ("registrar", &["GET", "{/discovery/orders}/x"]),
        ("registrar", &["FLUSHALL"]),
        ("reader", &["KEYS", "*"]),
    ] {
        let login = ["--no-auth-warning", "--user", user, "--pass", &format!("{user}-secret")];
        let answer = server.cli(&[&login, command].concat()).await;
        let said = answer.as_ref().map_or_else(ToString::to_string, Clone::clone);
        assert!(said.contains("NOPERM"), "{user} {command:?}: {said}");
    }
}

/// What an account that only discovers can do nevertheless, since every watch removes what has expired: hide a record, and tell others of
/// one that was never written. `docs/rights.md` says so; should this fail, mend the page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_may_still_mislead_others() {
    let Some(server) = guarded().await else { return };
    let open = |user: &str| REDIS.open(format!("{user}:{user}-secret@{}", server.address()), cases::policy(TTL));
    let settle = cases::settle(TTL);
    let (registrar, reader) = (open("registrar"), open("reader"));
    let _held = cases::register(&registrar, "pay", "a").await;
    let watch = reader.watch("pay");
    cases::shows(&watch, settle, &["a"]).await;
    let forge = "local stem, id = KEYS[1], 'b'
        local before = redis.call('GET', stem .. ':version')
        local version = string.format('%.0f', redis.call('INCR', stem .. ':version'))
        redis.call('ZADD', stem .. ':index', 'inf', id)
        redis.call('ZADD', stem .. ':revisions', version, id)
        redis.call('PUBLISH', stem .. ':changes', before .. ' ' .. version .. ' put 0 1\\n' .. id .. ARGV[1])
        return 1";
    let record = r#"{"v":1,"id":"b","service":"pay","endpoints":["grpc://127.0.0.1:6666"]}"#;
    let login = ["--no-auth-warning", "--user", "reader", "--pass", "reader-secret"];
    let said = server.cli(&[&login[..], &["EVAL", forge, "1", "{/discovery/pay}", record]].concat()).await;
    assert_eq!(said.expect("a forged change").trim(), "1");
    cases::shows(&watch, settle, &["a", "b"]).await;
}

/// The additions for a Cluster are enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r01_the_recipes_are_enough_in_a_cluster() {
    if !Redis::available().expect("Redis, which CI requires") {
        return;
    }
    let cluster = RedisCluster::start().await.expect("a Cluster");
    let additions = recipe_line("In a Cluster, both also need `");
    for server in cluster.servers() {
        for command in ["redis-reader", "redis-registrar"].iter().flat_map(|name| recipe(name)) {
            let words: Vec<_> = command.iter().skip(1).map(String::as_str).chain(additions.split(' ')).collect();
            assert_eq!(server.cli(&words).await.expect("a command of the recipe").trim(), "OK");
        }
    }
    let open = |user: &str| {
        let url = format!("redis+cluster://{user}:{user}-secret@{}", cluster.addresses());
        discovery_redis::open(&url.parse().expect("a URL"), cases::policy(TTL)).expect("a handle")
    };
    let (registrar, reader, settle) = (open("registrar"), open("reader"), cases::settle(TTL));
    let (watch, names) = (reader.watch("pay"), reader.watch_services());
    let held = cases::register(&registrar, "pay", "a").await;
    cases::shows(&watch, settle, &["a"]).await;
    names.ready(settle).await.expect("the services");
    // Over several renewals, sweeps and comparisons.
    stays(TTL * 3, "everything", async || {
        let all = (held.state(), watch.freshness(), names.freshness());
        if all.0.is_registered() && all.1.is_live() && all.2.is_live() { Ok(()) } else { Err(all) }
    })
    .await;
    assert!(names.latest().expect("the services").names().contains("pay"));
    for (backend, service) in [(&reader, "pay"), (&registrar, "orders")] {
        let error = backend.register(cases::instance(service, "x"), RegisterOptions::default()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{service}: {error}");
    }
    held.deregister().await.unwrap();
    cases::shows(&watch, settle, &[]).await;
}

/// What stands in backticks behind these words of the page.
fn recipe_line(words: &str) -> &'static str {
    let page = include_str!("../../../docs/rights.md");
    page.split_once(words).and_then(|(_, rest)| rest.split_once('`')).expect("the line").0
}

/// The server, by its root.
struct Root<'a>(&'a Redis);

#[async_trait]
impl Operator for Root<'_> {
    async fn change_password(&self, password: &str) {
        let password = format!(">{password}");
        for command in [&["ACL", "SETUSER", "app", "resetpass", &password][..], &["CLIENT", "KILL", "USER", "app"]] {
            self.0.cli(&[&ROOT, command].concat()).await.expect("a changed password");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r04_w04_a_rotated_password_is_read_anew() {
    let Some(server) = guarded().await else { return };
    // Both in one, under another name.
    let mut rights = recipe("redis-registrar").remove(0).split_off(5);
    rights.retain(|right| !right.starts_with("~{/discovery/pay}") && !right.starts_with("&{/discovery/pay}"));
    rights.extend(["~{/discovery/*", "&{/discovery/*", ">old-secret", "on"].map(str::to_owned));
    let rights: Vec<_> = ["ACL", "SETUSER", "app"].into_iter().chain(rights.iter().map(String::as_str)).collect();
    server.cli(&[&ROOT, &rights[..]].concat()).await.expect("an account");
    cases::a_rotated_password_is_read_anew(REDIS, server.socket_address(), "app", &Root(&server), TTL).await;
}

/// A login that the server has ended is made again, without a loss.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f14_a_login_that_was_ended_is_made_again() {
    let Some(server) = guarded().await else { return };
    let policy = cases::policy(TTL);
    let backend = REDIS.open(format!("registrar:registrar-secret@{}", server.address()), policy);
    let registration = cases::register(&backend, "pay", "a").await;
    let watch = backend.watch("pay");
    cases::shows(&watch, cases::settle(TTL), &["a"]).await;
    for _ in 0..3 {
        server.cli(&[&ROOT, &["CLIENT", "KILL", "USER", "registrar"][..]].concat()).await.expect("an ended login");
        cases::shows(&watch, cases::settle(TTL), &["a"]).await;
        cases::holds(&registration, cases::settle(TTL)).await;
    }
}
