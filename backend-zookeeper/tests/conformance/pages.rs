//! Several nodes of one id that are read on different pages: the newer one counts, whichever page it is on.

use std::time::Duration;

use discovery_core::Watch;
use discovery_core::conformance::{Fixture, eventually};
use discovery_core::encode;

use crate::fixture::ZooKeeperFixture;
use crate::stage::{SETTLE, instance, policy};

/// Enough that no page has all nodes; the order of a list of children is the server's.
const OTHERS: usize = 100;

fn ids() -> Vec<String> {
    (0..12).map(|n| format!("x{n:02}")).collect()
}

/// The ports of those with several nodes, and how many cannot be read.
fn shown(watch: &Watch) -> (Vec<u16>, usize) {
    let Some(set) = watch.latest() else { return (Vec::new(), 0) };
    let ours = set.instances().iter().filter(|instance| instance.id().starts_with('x'));
    (ours.map(|instance| instance.endpoints()[0].port()).collect(), set.unreadable())
}

async fn becomes(watch: &Watch, expected: (Vec<u16>, usize)) {
    eventually(SETTLE, "the set", async || match shown(watch) {
        seen if seen == expected && watch.freshness().is_live() => Ok(()),
        seen => Err(seen),
    })
    .await;
}

/// Puts an older node of each id, and then a newer one.
async fn put_both(fixture: &ZooKeeperFixture, newer: impl Fn(&str) -> Vec<u8>) {
    let others = (0..OTHERS).map(|n| format!("f{n:03}"));
    fixture.put_raw(others.map(|id| (format!("/discovery/pay/{id}"), encode(&instance(&id, 1)))).collect()).await;
    let older = |id: &String| (format!("/discovery/pay/{id}-0000000001"), encode(&instance(id, 1)));
    fixture.put_raw(ids().iter().map(older).collect()).await;
    fixture.put_raw(ids().iter().map(|id| (format!("/discovery/pay/{id}"), newer(id))).collect()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w10_of_nodes_on_different_pages_the_newer_counts_after_every_gap() {
    let Some(fixture) = ZooKeeperFixture::start().await else { return };
    put_both(&fixture, |id| encode(&instance(id, 2))).await;
    let (backend, link) = fixture.open("", policy()).await.unwrap();
    let mut watch = backend.watch("pay");
    watch.ready(SETTLE).await.unwrap();
    assert_eq!(shown(&watch), (vec![2; 12], 0));
    for _ in 0..2 {
        link.cut().await;
        eventually(SETTLE, "the gap", async || if watch.freshness().is_live() { Err(()) } else { Ok(()) }).await;
        link.pass().await;
        while !watch.freshness().is_live() {
            tokio::time::timeout(SETTLE, watch.changed()).await.unwrap();
            assert_eq!(shown(&watch), (vec![2; 12], 0));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w06_a_newer_node_that_cannot_be_read_leaves_no_phantom() {
    let Some(fixture) = ZooKeeperFixture::start().await else { return };
    put_both(&fixture, |_| b"junk".to_vec()).await;
    let (backend, _link) = fixture.open("", policy()).await.unwrap();
    let watch = backend.watch("pay");
    watch.ready(Duration::from_secs(5)).await.unwrap();
    assert_eq!(shown(&watch), (vec![], 12));
    let raw = fixture.raw().await;
    for id in ids() {
        raw.delete(&format!("/discovery/pay/{id}-0000000001")).await;
        raw.delete(&format!("/discovery/pay/{id}")).await;
    }
    becomes(&watch, (vec![], 0)).await;
}
