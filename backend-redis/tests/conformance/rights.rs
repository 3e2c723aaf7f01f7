//! Accounts of `docs/rights.md`, and a password that changes.

use std::time::Duration;

use async_trait::async_trait;
use discovery_harness::Redis;
use discovery_harness::cases::{self, Operator, recipe};

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
