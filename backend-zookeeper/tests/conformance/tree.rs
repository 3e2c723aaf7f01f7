//! What an operator sees in the tree and does to it.

use std::time::Duration;

use discovery_core::conformance::{Fixture, Link, eventually};
use discovery_core::{Brake, RegisterOptions, RegistrationState, encode};
use discovery_harness::cases::{holds, shows};
use discovery_harness::{ZooKeeper, ZooKeeperOptions};
use zookeeper_client::{Acls, CreateMode};

use crate::fixture::{ZOOKEEPER, ZooKeeperFixture};
use crate::raw::{Raw, SUPERSEDED};
use crate::stage::{SETTLE, SOON, has, instance, policy};

/// The names under the service's node.
async fn names(raw: &Raw) -> Vec<String> {
    let mut names = raw.0.list_children("/discovery/pay").await.unwrap_or_default();
    names.sort();
    names
}

/// The demonstration of the ZooKeeper article: two instances are seen in the tree, one is killed, the watcher's set and what it keeps
/// follow at once; the node is restored, and seen again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_zookeeper_articles_demonstration() {
    let Some(fixture) = ZooKeeperFixture::start().await else { return };
    let raw = fixture.raw().await;
    let (consumer, _) = fixture.open("", policy()).await.unwrap();
    let watch = consumer.watch("pay");
    let (one, _one) = ZOOKEEPER.open_through(fixture.server.socket_address(), "", policy()).await.unwrap();
    let (two, wire) = ZOOKEEPER.open_through(fixture.server.socket_address(), "", policy()).await.unwrap();
    let _first = one.register(instance("a", 1), RegisterOptions::default()).await.unwrap();
    let killed = two.register(instance("b", 2), RegisterOptions::default()).await.unwrap();
    // Both are nodes that hang on a session.
    assert_eq!(names(&raw).await, ["a-0000000000", "b-0000000001"]);
    let nodes = raw.nodes().await;
    assert_ne!(nodes["/discovery/pay/b-0000000001"].1.ephemeral_owner, 0);
    shows(&watch, SOON, &["a", "b"]).await;

    // One is killed: its session ends, and the set follows the tree at once.
    wire.cut().await;
    let session = nodes["/discovery/pay/b-0000000001"].1.ephemeral_owner;
    fixture.server.end_session(session).await.unwrap();
    shows(&watch, Duration::from_millis(500), &["a"]).await;
    assert_eq!(names(&raw).await, ["a-0000000000"]);
    assert_eq!(watch.latest().unwrap().get("b"), None);

    // It is restored, and seen again.
    wire.pass().await;
    shows(&watch, SETTLE, &["a", "b"]).await;
    assert_eq!(names(&raw).await.len(), 2);
    holds(&killed, SETTLE).await;
}

/// R4: an operator who sets the data of our own node finds it set back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r04_data_set_by_hand_are_set_back() {
    let Some(fixture) = ZooKeeperFixture::start().await else { return };
    let raw = fixture.raw().await;
    let (backend, _) = fixture.open("", policy()).await.unwrap();
    let watch = backend.watch("pay");
    let registration = backend.register(instance("a", 1), RegisterOptions::default()).await.unwrap();
    let port = async |wanted: u16, deadline| {
        eventually(deadline, "the port", async || {
            let found = watch.latest().and_then(|set| set.get("a").map(|i| i.endpoints()[0].port()));
            if found == Some(wanted) { Ok(()) } else { Err(found) }
        })
        .await;
    };
    port(1, SOON).await;
    raw.0.set_data("/discovery/pay/a-0000000000", &encode(&instance("a", 9)), None).await.unwrap();
    port(9, SOON).await;
    port(1, SETTLE).await;
    // The next update is a plain one again.
    registration.update(|builder| builder.weight(7)).await.unwrap();
    assert_eq!(names(&raw).await, ["a-0000000000"]);
}

/// R6: whoever takes an id over leaves a mark on the former owner's node, which the former owner takes away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r06_a_takeover_leaves_a_mark_that_goes_with_the_former_owner() {
    let Some(fixture) = ZooKeeperFixture::start().await else { return };
    let raw = fixture.raw().await;
    let (one, _) = fixture.open("", policy()).await.unwrap();
    let (two, _) = fixture.open("", policy()).await.unwrap();
    let former = one.register(instance("a", 1), RegisterOptions::default()).await.unwrap();
    let _newer = two.register(instance("a", 2), RegisterOptions::default()).await.unwrap();
    assert_eq!(raw.0.get_data("/discovery/pay/a-0000000000").await.unwrap().0, SUPERSEDED);
    eventually(SETTLE, "the former owner to see it", async || match former.state() {
        RegistrationState::Superseded => Ok(()),
        state => Err(format!("{state:?}")),
    })
    .await;
    eventually(SOON, "the mark to be gone", async || match names(&raw).await {
        names if names == ["a-0000000001"] => Ok(()),
        names => Err(names),
    })
    .await;
}

/// Ids that end like a sequence, ours and by hand, are told apart from sequences.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w11_ids_that_look_like_sequences_are_kept_apart() {
    let Some(fixture) = ZooKeeperFixture::start().await else { return };
    let raw = fixture.raw().await;
    let (backend, _) = fixture.open("", policy()).await.unwrap();
    let watch = backend.watch("pay");
    let mut held = Vec::new();
    for id in ["a", "a-0000000012", "a-0000000012-0000000012", "-0000000012", "a-00000000123"] {
        held.push(backend.register(instance(id, 1), RegisterOptions::default()).await.unwrap());
    }
    let by_hand = encode(&instance("b-0000000007", 1));
    raw.put(vec![("/discovery/pay/b-0000000007-0000000000".to_owned(), by_hand)]).await;
    let all = ["-0000000012", "a", "a-0000000012", "a-0000000012-0000000012", "a-00000000123", "b-0000000007"];
    shows(&watch, SOON, &all).await;
    assert_eq!(watch.latest().unwrap().unreadable(), 0);
    held.remove(1).deregister().await.unwrap();
    shows(&watch, SOON, &[all[0], all[1], all[3], all[4], all[5]]).await;
}

/// F03: the service's node, and even the root, is deleted with everything in it; whoever watches sees who comes later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f03_deleted_parents_are_no_matter() {
    let Some(fixture) = ZooKeeperFixture::start().await else { return };
    let raw = fixture.raw().await;
    let mut policy = policy();
    policy.brake = Brake::Off;
    policy.reconcile = Duration::from_secs(3_600);
    let (backend, _) = fixture.open("", policy).await.unwrap();
    let (watch, services) = (backend.watch("pay"), backend.watch_services());
    shows(&watch, SOON, &[]).await;
    for round in 0..3 {
        let registration = backend.register(instance("a", 1), RegisterOptions::default()).await.unwrap();
        shows(&watch, SOON, &["a"]).await;
        registration.deregister().await.unwrap();
        shows(&watch, SOON, &[]).await;
        for path in ["/discovery/pay", "/discovery"].into_iter().take(round + 1) {
            raw.delete(path).await;
        }
    }
    eventually(SOON, "the list of services to be empty", async || match services.latest() {
        Some(list) if list.names().is_empty() => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}

/// F03: the server removes parents that are empty, as they are containers; they come back with the next record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f03_empty_parents_go_and_come_back() {
    if !ZooKeeper::available().expect("ZooKeeper, which CI requires") {
        return;
    }
    if !has("containers", (3, 5)).await {
        return;
    }
    let options = ZooKeeperOptions::default().with_property("znode.container.checkIntervalMs", "100");
    let server = ZooKeeper::start_with(options).await.unwrap();
    let raw = Raw::connect(&server).await;
    let (backend, _wire) = ZOOKEEPER.open_through(server.socket_address(), "", policy()).await.unwrap();
    let watch = backend.watch("pay");
    for _ in 0..2 {
        let registration = backend.register(instance("a", 1), RegisterOptions::default()).await.unwrap();
        shows(&watch, SOON, &["a"]).await;
        assert_eq!(names(&raw).await, ["a-0000000000"]);
        registration.deregister().await.unwrap();
        eventually(SOON, "the root to be gone", async || match raw.0.check_stat("/discovery").await {
            Ok(None) => Ok(()),
            other => Err(other),
        })
        .await;
        shows(&watch, SOON, &[]).await;
    }
}

/// W11: a namespace inside of another one is not a service of the outer one, empty or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w11_a_namespace_inside_another_is_no_service() {
    let Some(fixture) = ZooKeeperFixture::start().await else { return };
    let raw = fixture.raw().await;
    let (outer, _) = fixture.open("/prod", policy()).await.unwrap();
    let (inner, _) = fixture.open("/prod/eu", policy()).await.unwrap();
    let kept = inner.register(instance("a", 1), RegisterOptions::default()).await.unwrap();
    let watch = outer.watch("eu");
    eventually(SOON, "an empty set", async || match watch.latest() {
        Some(set) if set.is_empty() && set.unreadable() == 0 => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    assert!(outer.services(SOON).await.unwrap().names().is_empty());
    kept.deregister().await.unwrap();
    // Parents by hand are persistent ones.
    raw.0.mkdir("/prod/us/pay/eu", &CreateMode::Persistent.with_acls(Acls::anyone_all())).await.unwrap();
    let registration = outer.register(instance("b", 1), RegisterOptions::default()).await.unwrap();
    eventually(SOON, "one service", async || {
        let list = outer.services(SOON).await.unwrap();
        if list.names().iter().map(|name| &**name).eq(["pay"]) { Ok(()) } else { Err(list.names().clone()) }
    })
    .await;
    registration.deregister().await.unwrap();
}
