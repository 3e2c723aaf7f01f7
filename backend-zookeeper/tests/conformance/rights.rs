//! Accounts of `docs/rights.md`, and a password that changes.

use std::time::Duration;

use async_trait::async_trait;
use discovery_core::conformance::Fixture;
use discovery_harness::cases::{self, Operator, recipe};
use zookeeper_client::{Acl, Acls, AuthId, CreateMode, Error, Permission};

use crate::fixture::{ZOOKEEPER, ZooKeeperFixture};

/// As the fixture's.
const TTL: Duration = Duration::from_secs(5);

/// Does what `zkCli.sh` does with the recipe.
async fn follow(fixture: &ZooKeeperFixture, name: &str) {
    let raw = fixture.raw().await;
    for command in recipe(name) {
        let words: Vec<_> = command.iter().map(String::as_str).collect();
        match words[..] {
            ["addauth", scheme, login] => raw.0.auth(scheme, login.as_bytes()).await.expect("an identity"),
            ["create", path, data] => {
                let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
                raw.0.create(path, data.as_bytes(), &persistent).await.map(drop).expect("a node");
            }
            ["setAcl", path, acls] => {
                let acls: Vec<_> = acls.split(',').map(acl).collect();
                raw.0.set_acl(path, &acls, None).await.map(drop).expect("rights");
            }
            _ => panic!("no command of zkCli.sh: {command:?}"),
        }
    }
}

fn acl(text: &str) -> Acl {
    let (scheme, rest) = text.split_once(':').expect("a scheme");
    let (id, rights) = rest.rsplit_once(':').expect("rights");
    let rights = rights.chars().fold(Permission::NONE, |all, right| {
        all | match right {
            'c' => Permission::CREATE,
            'd' => Permission::DELETE,
            'r' => Permission::READ,
            'w' => Permission::WRITE,
            _ => Permission::ADMIN,
        }
    });
    Acl::new(rights, AuthId::new(scheme, id))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r01_r03_the_recipes_are_enough_and_least() {
    let Some(fixture) = ZooKeeperFixture::start().await else { return };
    follow(&fixture, "zookeeper").await;
    // Another service, of which the registrar of the recipe knows no more than its name. Whoever lists the services may look into each.
    let raw = fixture.raw().await;
    raw.0.auth("digest", b"admin:admin-secret").await.expect("an identity");
    let acls = [Acl::new(Permission::ALL, AuthId::authed()), acl(&recipe("zookeeper-acl")[0][0])];
    let owned = CreateMode::Persistent.with_acls(Acls::new(&acls));
    raw.0.create("/discovery/orders", b"", &owned).await.expect("a node");
    let options = format!("?acl={}", recipe("zookeeper-acl")[0][0]);
    let server = fixture.server.socket_address();
    cases::the_recipes_are_enough_and_least(ZOOKEEPER, server, &options, TTL).await;
    // What the server itself refuses, whoever asks it, and what it does not.
    let backend = ZOOKEEPER.open(format!("registrar:registrar-secret@{server}{options}"), cases::policy(TTL));
    let held = cases::register(&backend, "pay", "a").await;
    let raw = async |user: &str| {
        let raw = fixture.raw().await;
        raw.0.auth("digest", format!("{user}:{user}-secret").as_bytes()).await.expect("an identity");
        raw
    };
    let (reader, registrar) = (raw("reader").await, raw("registrar").await);
    let records = registrar.0.list_children("/discovery/pay").await.expect("the records");
    let path = format!("/discovery/pay/{}", records.first().expect("a record"));
    let own = CreateMode::Ephemeral.with_acls(Acls::creator_all());
    assert!(reader.0.get_data(&path).await.is_ok(), "the reader may not read");
    for (what, answer) in [
        ("hides a record", reader.0.delete(&path, None).await),
        ("overwrites a record", reader.0.set_data(&path, b"x", None).await.map(drop)),
        ("writes a record", reader.0.create("/discovery/pay/x", b"x", &own).await.map(drop)),
        ("writes a service", reader.0.create("/discovery/x", b"x", &own).await.map(drop)),
        ("takes rights", reader.0.set_acl(&path, Acls::anyone_all().as_ref(), None).await.map(drop)),
        ("writes for another service", registrar.0.create("/discovery/orders/x", b"x", &own).await.map(drop)),
        ("reads another service", registrar.0.list_children("/discovery/orders").await.map(drop)),
        ("writes a service", registrar.0.create("/discovery/x", b"x", &own).await.map(drop)),
        ("takes the service", registrar.0.set_acl("/discovery/pay", Acls::anyone_all().as_ref(), None).await.map(drop)),
    ] {
        assert_eq!(answer, Err(Error::NoAuth), "{what}");
    }
    registrar.0.delete(&path, None).await.expect("another's record of the same service");
    drop(held);
}

/// Everything under the root belongs to `app` with its password of now, and to an administrator.
struct Owned<'a>(&'a ZooKeeperFixture);

#[async_trait]
impl Operator for Owned<'_> {
    async fn change_password(&self, password: &str) {
        let raw = self.0.raw().await;
        for login in ["admin:admin-secret", &format!("app:{password}")] {
            raw.0.auth("digest", login.as_bytes()).await.expect("an identity");
        }
        for path in ["/discovery", "/discovery/pay"] {
            raw.0.set_acl(path, &Acls::creator_all(), None).await.expect("rights");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r04_w04_a_rotated_password_is_read_anew() {
    let Some(fixture) = ZooKeeperFixture::start().await else { return };
    let raw = fixture.raw().await;
    let anyone = CreateMode::Persistent.with_acls(Acls::anyone_all());
    raw.0.mkdir("/discovery/pay", &anyone).await.expect("nodes");
    let operator = Owned(&fixture);
    operator.change_password("old-secret").await;
    cases::a_rotated_password_is_read_anew(ZOOKEEPER, fixture.server.socket_address(), "app", &operator, TTL).await;
}
