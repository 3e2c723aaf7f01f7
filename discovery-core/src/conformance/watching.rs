//! W1, W3–W7, W11–W13: what a watch shows.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use super::stage::{eventually, fail, ids, instance, path, register, shows, shows_live, space, stays};
use super::{Fixture, Stage};
use crate::{ErrorKind, Freshness, Key, MAX_ENDPOINTS, MAX_METADATA};

const SOON: Duration = Duration::from_secs(3);

/// Moments of a read, 25 ms apart: longer than it takes.
const MOMENTS: u32 = 24;

/// W1: the first set is the full set, also of a service that was never seen.
pub async fn w01_the_first_set_is_full_even_if_empty<F: Fixture>(stage: Stage<F>) {
    let (backend, _) = stage.handle().await;
    let mut watch = backend.watch("never-seen");
    match tokio::time::timeout(Duration::from_secs(2), watch.changed()).await {
        Ok(Some(first)) => assert!(first.is_empty() && first.freshness().is_live()),
        other => fail(&format!("no first set: {other:?}")),
    }
    let all: Vec<_> = (0..50).map(|n| instance("pay", &format!("{n:02}"))).collect();
    stage.put(&all).await;
    let mut watch = backend.watch("pay");
    let first = watch.changed().await.unwrap_or_else(|| fail("the watch ended"));
    assert_eq!(first.len(), 50, "the first set was not full");
    // And what was never seen can still come.
    let late = backend.watch("never-seen");
    let _registration = register(&backend, instance("never-seen", "a")).await;
    shows(&late, SOON, &["a"]).await;
}

/// W2: whatever comes, changes or goes at whatever moment of a read over a slow link is in the set, without reconciliation.
pub async fn w02_what_changes_while_a_set_is_read_is_in_it<F: Fixture>(stage: Stage<F>) {
    let policy = crate::Policy { reconcile: Duration::from_secs(600), ..stage.policy() };
    let service = |moment: u32| format!("service-{moment}");
    for moment in 0..MOMENTS {
        stage.put(&[instance(&service(moment), "a"), instance(&service(moment), "b")]).await;
    }
    let (stage, service) = (&stage, &service);
    let reads = (0..MOMENTS).map(|moment| {
        let policy = policy.clone();
        async move {
            let (backend, link) = stage.handle_with("", policy).await;
            link.delay(Duration::from_millis(40)).await;
            let (watch, service) = (backend.watch(&service(moment)), service(moment));
            tokio::time::sleep(Duration::from_millis(25) * moment).await;
            stage.put(&[instance(&service, "new")]).await;
            stage.fixture.delete_raw(&path(&service, "a")).await;
            stage
                .put(&[instance(&service, "b").to_builder().weight(7).build().unwrap_or_else(|e| fail(&e.to_string()))])
                .await;
            eventually(Duration::from_secs(5), "the set to be the store's", async || match watch.latest() {
                Some(set) if ids(&set) == ["b", "new"] && set.get("b").is_some_and(|b| b.weight() == 7) => Ok(()),
                other => Err((moment, other.map(|set| ids(&set)))),
            })
            .await;
        }
    });
    futures_util::future::join_all(reads).await;
}

/// W3: a watch that is not read holds one set, and yields the newest one when it is.
pub async fn w03_a_slow_reader_gets_the_newest_set<F: Fixture>(stage: Stage<F>) {
    let (backend, _) = stage.handle().await;
    let mut slow = backend.watch("pay");
    let eager = backend.watch("pay");
    shows(&eager, SOON, &[]).await;
    let registration = register(&backend, instance("pay", "a")).await;
    for weight in 1..=50 {
        assert_eq!(registration.update(|i| i.weight(weight)).await.map_err(|e| e.to_string()), Ok(()));
    }
    // The eager watch is not held up by the slow one.
    eventually(SOON, "the last weight", async || match eager.latest().and_then(|s| s.get("a").map(|i| i.weight())) {
        Some(50) => Ok(()),
        other => Err(other),
    })
    .await;
    let next = slow.changed().await.unwrap_or_else(|| fail("the watch ended"));
    assert_eq!(next.get("a").map(|i| i.weight()), Some(50), "an older set was yielded first");
    assert!(tokio::time::timeout(Duration::from_millis(300), slow.changed()).await.is_err(), "older sets were kept");
}

/// W4: an outage leaves the set as it is, stale with since when and why, and it turns live again.
pub async fn w04_an_outage_empties_nothing<F: Fixture>(stage: Stage<F>) {
    let (backend, link) = stage.handle().await;
    let (other, _) = stage.handle().await;
    stage.put(&[instance("pay", "a"), instance("pay", "b")]).await;
    let watch = backend.watch("pay");
    let first = shows(&watch, SOON, &["a", "b"]).await;
    link.cut().await;
    let (since, cause) = eventually(SOON, "the set to be stale", async || match watch.freshness() {
        Freshness::Stale(since, cause) => Ok((since, cause)),
        freshness => Err(format!("{freshness:?}")),
    })
    .await;
    assert!(since.elapsed() < SOON && cause.is_retryable(), "{cause}");
    let second = backend.watch("pay");
    stays(stage.fixture.ttl() * 2, "the set", async || match (watch.latest(), second.latest()) {
        (Some(a), Some(b)) if a.changes_since(&first).is_empty() && b.len() == 2 => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    let _joined = register(&other, instance("pay", "c")).await;
    link.pass().await;
    shows_live(&watch, stage.settle(), &["a", "b", "c"]).await;
}

/// W5: whatever happens, a watch ends only with its backend.
pub async fn w05_a_watch_ends_only_with_its_backend<F: Fixture>(stage: Stage<F>) {
    let (backend, link) = stage.handle().await;
    let mut watch = backend.watch("pay");
    shows(&watch, SOON, &[]).await;
    for _ in 0..3 {
        link.cut().await;
        eventually(SOON, "stale", async || if watch.freshness().is_stale() { Ok(()) } else { Err(watch.freshness()) })
            .await;
        link.pass().await;
        eventually(
            stage.settle(),
            "live",
            async || {
                if watch.freshness().is_live() { Ok(()) } else { Err(watch.freshness()) }
            },
        )
        .await;
    }
    assert!(!watch.is_closed());
    let _a = register(&backend, instance("pay", "a")).await;
    shows(&watch, SOON, &["a"]).await;
    assert_eq!(backend.close(SOON).await.map_err(|e| e.to_string()), Ok(()));
    while watch.changed().await.is_some() {}
    assert!(watch.is_closed());
}

/// W6: bad records are skipped and counted, their neighbours stay, and removing them removes nobody else.
pub async fn w06_f09_a_bad_record_hides_nobody<F: Fixture>(stage: Stage<F>) {
    let (backend, _) = stage.handle().await;
    stage.put(&[instance("pay", "a")]).await;
    let prefix = space("").service_prefix("pay");
    let random: Vec<u8> = (0..300_000).map(|_| fastrand::u8(..)).collect();
    let head = r#"{"v":1,"service":"pay","id":"#;
    let bad: Vec<(String, Vec<u8>)> = vec![
        ("empty".into(), Vec::new()),
        ("brace".into(), b"{".to_vec()),
        ("random".into(), random),
        ("null".into(), b"null".to_vec()),
        ("portless".into(), format!(r#"{head}"portless","endpoints":["grpc://10.0.0.5"]}}"#).into_bytes()),
        ("high".into(), format!(r#"{head}"high","endpoints":["grpc://10.0.0.5:70000"]}}"#).into_bytes()),
        ("text".into(), format!(r#"{head}"text","endpoints":[{{"port":"80"}}]}}"#).into_bytes()),
        ("nan".into(), format!(r#"{head}"nan","endpoints":["grpc://h:1"],"weight":"NaN"}}"#).into_bytes()),
        ("stranger".into(), format!(r#"{head}"somebody-else","endpoints":["grpc://h:1"]}}"#).into_bytes()),
    ];
    let many = |one: &str, count: usize| vec![one; count].join(",");
    let endpoints = many(r#""grpc://h:1""#, MAX_ENDPOINTS + 1);
    let metadata = many(r#""a":"b""#, MAX_METADATA + 1);
    let (open, close) = ("[".repeat(100_000), "]".repeat(100_000));
    let hostile = [
        ("endpoints", format!(r#"{head}"endpoints","endpoints":[{endpoints}]}}"#)),
        ("metadata", format!(r#"{head}"metadata","endpoints":["grpc://h:1"],"metadata":{{{metadata}}}}}"#)),
        ("deep", format!(r#"{head}"deep","endpoints":["grpc://h:1"],"x":{open}{close}}}"#)),
        ("negative", format!(r#"{head}"negative","endpoints":["grpc://h:1"],"started_at":-1}}"#)),
        ("large", format!(r#"{head}"large","endpoints":["{}"]}}"#, "x".repeat(900_000))),
    ];
    let hostile = hostile.into_iter().map(|(id, text)| (id.to_owned(), text.into_bytes()));
    let bad: Vec<_> = bad.into_iter().chain(hostile).collect();
    let keys: Vec<_> = bad.iter().map(|(id, _)| format!("{prefix}{id}")).collect();
    stage.fixture.put_raw(keys.iter().cloned().zip(bad.into_iter().map(|(_, value)| value)).collect()).await;
    let watch = backend.watch("pay");
    let snapshot = shows(&watch, SOON, &["a"]).await;
    assert_eq!(snapshot.unreadable(), keys.len());
    let _b = register(&backend, instance("pay", "b")).await;
    shows(&watch, SOON, &["a", "b"]).await;
    for key in &keys {
        stage.fixture.delete_raw(key).await;
    }
    eventually(SOON, "the bad records to be gone", async || match watch.latest() {
        Some(snapshot) if ids(&snapshot) != ["a", "b"] => fail(&format!("neighbours vanished: {snapshot:?}")),
        Some(snapshot) if snapshot.unreadable() == 0 => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    assert!(watch.freshness().is_live());
}

/// W6: while the key exists, the last good value of a record that became unreadable is kept.
pub async fn w06_the_last_good_value_is_kept<F: Fixture>(stage: Stage<F>) {
    let (backend, _) = stage.handle().await;
    stage.put(&[instance("pay", "a"), instance("pay", "b")]).await;
    let watch = backend.watch("pay");
    shows(&watch, SOON, &["a", "b"]).await;
    stage.fixture.put_raw(vec![(path("pay", "a"), b"{".to_vec())]).await;
    let unreadable = async |count: usize| {
        eventually(SOON, "the count of unreadable records", async || match watch.latest() {
            Some(snapshot) if snapshot.unreadable() == count => Ok(snapshot),
            other => Err(format!("{other:?}")),
        })
        .await
    };
    assert_eq!(ids(&*unreadable(1).await), ["a", "b"]);
    stage.put(&[instance("pay", "a")]).await;
    assert_eq!(ids(&*unreadable(0).await), ["a", "b"]);
    stage.fixture.put_raw(vec![(path("pay", "a"), b"{".to_vec())]).await;
    unreadable(1).await;
    stage.fixture.delete_raw(&path("pay", "a")).await;
    shows(&watch, SOON, &["b"]).await;
}

/// W7: a second watch of the same service on the same handle reads nothing from the store.
pub async fn w07_watches_share_one_subscription<F: Fixture>(stage: Stage<F>) {
    let policy = crate::Policy { reconcile: Duration::from_secs(3_600), ..stage.policy() };
    let (backend, link) = stage.handle_with("", policy).await;
    let all: Vec<_> = (0..500).map(|n| instance("pay", &format!("{n:03}"))).collect();
    stage.put(&all).await;
    let first = backend.watch("pay");
    eventually(SOON, "the set", async || match first.latest() {
        Some(snapshot) if snapshot.len() == 500 => Ok(()),
        other => Err(other.map(|s| s.len())),
    })
    .await;
    let one_read = link.received();
    let more: Vec<_> = (0..50).map(|_| backend.watch("pay")).collect();
    assert!(more.iter().all(|watch| watch.latest().is_some_and(|s| s.len() == 500)), "a watch was read for anew");
    stage.fixture.delete_raw(&path("pay", "000")).await;
    for watch in &more {
        eventually(SOON, "the change", async || match watch.latest() {
            Some(snapshot) if snapshot.len() == 499 => Ok(()),
            other => Err(other.map(|s| s.len())),
        })
        .await;
    }
    let received = link.received() - one_read;
    assert!(received < one_read / 4, "{received} bytes after {one_read} for the set");
}

/// W11: names that begin alike, differ in case or hold separators never see each other.
pub async fn w11_f07_names_are_isolated<F: Fixture>(stage: Stage<F>) {
    let (backend, _) = stage.handle().await;
    let names = ["pay", "pay-v2", "pay/v2", "payroll", "PAY", "pay%2Fv2", "..", "Zahlung ü", "*", "pay/"];
    let mut held = Vec::new();
    for name in names {
        held.push(register(&backend, instance(name, &format!("of {name}"))).await);
    }
    let watches: Vec<_> = names.iter().map(|name| backend.watch(name)).collect();
    for (name, watch) in names.iter().zip(&watches) {
        shows(watch, SOON, &[&format!("of {name}")]).await;
    }
    let pay = shows(&watches[0], SOON, &["of pay"]).await;
    assert_eq!(held.remove(1).deregister().await.map_err(|e| e.to_string()), Ok(()));
    shows(&watches[1], SOON, &[]).await;
    let later = shows(&watches[0], SOON, &["of pay"]).await;
    assert_eq!(later.changes_since(&pay), []);
    let names = backend.services(SOON).await.map(|s| s.names().clone()).unwrap_or_else(|e| fail(&e.to_string()));
    assert_eq!(names.len(), 9, "{names:?}");
    // A name that no store can hold is an error where one can be given, and a reason where none can.
    let Err(error) = backend.snapshot("", SOON).await else { fail("an empty name was taken") };
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let watch = backend.watch("a\u{7}b");
    assert!(watch.latest().is_none());
    assert_eq!(watch.freshness().cause().map(|cause| cause.kind()), Some(ErrorKind::InvalidInput));
}

/// W11: namespaces that begin alike never see each other.
pub async fn w11_f07_namespaces_are_isolated<F: Fixture>(stage: Stage<F>) {
    let prefixes = ["/prod", "/prod-eu", "/prod/eu"];
    let mut held = Vec::new();
    for prefix in prefixes {
        let (backend, _) = stage.handle_with(prefix, stage.policy()).await;
        held.push((register(&backend, instance("pay", prefix)).await, backend.watch("pay"), backend));
    }
    for ((_, watch, backend), prefix) in held.iter().zip(prefixes) {
        shows(watch, SOON, &[prefix]).await;
        let names = backend.services(SOON).await.map(|s| s.names().clone()).unwrap_or_else(|e| fail(&e.to_string()));
        assert_eq!(names, BTreeSet::from(["pay".into()]), "under {prefix}");
    }
    let key = space("/prod").key(&Key { service: "pay".into(), id: "/prod".into() });
    assert!(stage.fixture.get_raw(&key).await.is_some());
}

/// W12: a connection that is open but silent is noticed and replaced, also if nobody uses it.
pub async fn w12_a_silent_connection_is_replaced<F: Fixture>(stage: Stage<F>) {
    let (backend, link) = stage.handle().await;
    let watch = backend.watch("pay");
    shows(&watch, SOON, &[]).await;
    let connects = link.connects();
    link.freeze().await;
    stage.put(&[instance("pay", "a")]).await;
    // Probe every second, wait one second for the answer.
    eventually(Duration::from_secs(5), "a new connection", async || {
        if link.connects() > connects { Ok(()) } else { Err((link.connects(), watch.freshness())) }
    })
    .await;
    link.pass().await;
    shows(&watch, stage.settle(), &["a"]).await;
}

/// W13: with the store away from the start, a watch says why it has no set, and delivers one when the store comes.
pub async fn w13_a_store_that_comes_late_is_awaited<F: Fixture>(stage: Stage<F>) {
    let (backend, link) = stage.handle().await;
    // The handle may have connected already; what matters is that the store is away when the watch is opened.
    link.cut().await;
    let begun = Instant::now();
    let watch = backend.watch("pay");
    assert!(begun.elapsed() < Duration::from_millis(50));
    assert!(watch.latest().is_none());
    eventually(SOON, "the reason", async || match watch.freshness() {
        Freshness::Loading(_, Some(cause)) => Ok(cause),
        freshness => Err(format!("{freshness:?}")),
    })
    .await;
    let Err(error) = watch.ready(Duration::from_millis(100)).await else { fail("there was a set") };
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
    stage.put(&[instance("pay", "a")]).await;
    link.pass().await;
    shows(&watch, stage.settle(), &["a"]).await;
}

/// The list of services follows the store as sets do.
pub async fn watching_services_lists_their_names<F: Fixture>(stage: Stage<F>) {
    let (backend, link) = stage.handle().await;
    let watch = backend.watch_services();
    let lists = async |expected: &[&str]| {
        eventually(stage.settle(), &format!("the services {expected:?}"), async || match watch.latest() {
            Some(list) if list.names().iter().map(|name| &**name).eq(expected.iter().copied()) => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
    };
    lists(&[]).await;
    let a1 = register(&backend, instance("a", "1")).await;
    let a2 = register(&backend, instance("a", "2")).await;
    let _b = register(&backend, instance("b", "1")).await;
    lists(&["a", "b"]).await;
    assert_eq!(a1.deregister().await.map_err(|e| e.to_string()), Ok(()));
    link.cut().await;
    eventually(SOON, "stale", async || if watch.freshness().is_stale() { Ok(()) } else { Err(watch.freshness()) })
        .await;
    lists(&["a", "b"]).await;
    link.pass().await;
    assert_eq!(a2.deregister_within(stage.settle()).await.map_err(|e| e.to_string()), Ok(()));
    lists(&["b"]).await;
}
