//! Accounts of `docs/rights.md`, and a password that changes.

use std::time::Duration;

use async_trait::async_trait;
use discovery_harness::Etcd;
use discovery_harness::cases::{self, Operator, recipe};

use crate::fixture::ETCD;

const TTL: Duration = Duration::from_secs(3);

/// A server with the accounts of a recipe, and root's.
async fn guarded(recipes: &[&str]) -> Option<Etcd> {
    if !Etcd::available().expect("etcd, which CI requires") {
        return None;
    }
    let server = Etcd::start().await.expect("a started etcd");
    for command in recipes.iter().flat_map(|name| recipe(name)) {
        let words: Vec<_> = command.iter().skip(1).map(String::as_str).collect();
        server.ctl(&words).await.expect("a command of the recipe");
    }
    for command in ["user add root:root-secret", "user grant-role root root", "auth enable"] {
        let words: Vec<_> = command.split(' ').collect();
        server.ctl(&words).await.expect("an account");
    }
    Some(server)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r01_r03_the_recipes_are_enough_and_least() {
    let Some(server) = guarded(&["etcd-reader", "etcd-registrar"]).await else { return };
    cases::the_recipes_are_enough_and_least(ETCD, server.socket_address(), "", TTL).await;
    // What the server itself refuses, whoever asks it, and what it does not.
    let ask = async |user: &str, command: &str| {
        let login = format!("{user}:{user}-secret");
        let words: Vec<_> = ["--user", &login].into_iter().chain(command.split(' ')).collect();
        server.ctl(&words).await.map_err(|error| error.to_string())
    };
    ask("registrar", "put /discovery/pay/x y").await.expect("a record of the registrar's");
    for (user, command) in [
        ("reader", "put /discovery/pay/y z"),
        ("reader", "del /discovery/pay/x"),
        ("reader", "del /discovery/ --prefix"),
        ("reader", "put /discovery/% x"),
        ("reader", "get / --prefix"),
        ("reader", "user list"),
        ("registrar", "put /discovery/orders/x y"),
        ("registrar", "get /discovery/orders/ --prefix"),
        ("registrar", "del /discovery/ --prefix"),
        ("registrar", "put /discovery/pay-v2/x y"),
        ("registrar", "auth disable"),
    ] {
        let said = ask(user, command).await.expect_err(command);
        assert!(said.contains("permission denied"), "{user} {command}: {said}");
    }
    assert!(ask("reader", "get /discovery/pay/x").await.expect("the record").contains('y'));
    ask("registrar", "del /discovery/pay/x").await.expect("another's record of the same service");
}

/// The server, by its root.
struct Root<'a>(&'a Etcd);

#[async_trait]
impl Operator for Root<'_> {
    async fn change_password(&self, password: &str) {
        let words = ["--user", "root:root-secret", "user", "passwd", "app", "--interactive=false"];
        self.0.ctl_stdin(&words, format!("{password}\n").as_bytes()).await.expect("a changed password");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r04_w04_a_rotated_password_is_read_anew() {
    let Some(server) = guarded(&["etcd-reader", "etcd-registrar"]).await else { return };
    for command in ["user add app:old-secret", "user grant-role app reader", "user grant-role app registrar"] {
        let words: Vec<_> = "--user root:root-secret".split(' ').chain(command.split(' ')).collect();
        server.ctl(&words).await.expect("an account");
    }
    cases::a_rotated_password_is_read_anew(ETCD, server.socket_address(), "app", &Root(&server), TTL).await;
}
