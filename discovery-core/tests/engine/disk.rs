//! Starts without the store, from sets on the disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use discovery_core::conformance::{eventually, stays};
use discovery_core::memory::{MemoryLink, MemoryStore};
use discovery_core::picker::RoundRobin;
use discovery_core::{
    Backend, Balancer, BalancerOptions, Brake, Context, DiskCache, ErrorKind, Instance, Outcome, Policy,
    RegisterOptions, Snapshot, StalePolicy, Watch, encode,
};
use tempfile::{TempDir, tempdir};
use tokio::time::{Instant, sleep, timeout};

use super::{instance, millis, path, put, seconds};

/// A store, and the directory that all handles of it share.
struct Stage {
    store: MemoryStore,
    above: TempDir,
    policy: Policy,
}

impl Stage {
    fn new() -> Self {
        let above = tempdir().unwrap();
        let mut policy = Policy::default();
        policy.cache = Some(DiskCache::new(above.path().join("sets")));
        Self { store: MemoryStore::new(), above, policy }
    }

    fn folder(&self) -> PathBuf {
        self.above.path().join("sets")
    }

    fn files(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.folder()).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    fn open(&self) -> (Arc<dyn Backend>, MemoryLink) {
        self.store.open("", self.policy.clone()).unwrap()
    }

    /// A process that starts while the store cannot be reached.
    fn open_without_the_store(&self) -> (Arc<dyn Backend>, MemoryLink) {
        let (backend, link) = self.open();
        link.cut();
        (backend, link)
    }

    /// A process saw these instances of `pay` and was killed.
    async fn left(&self, ids: &[&str]) {
        for id in ids {
            put(&self.store, id, 1);
        }
        let (backend, _) = self.open();
        let watch = backend.watch("pay");
        live(&watch, ids).await;
        written(&backend, 1).await;
    }
}

fn ids(set: &Snapshot) -> Vec<&str> {
    set.instances().iter().map(|instance| instance.id()).collect()
}

/// What a watch yields first.
async fn first(watch: &mut Watch) -> Arc<Snapshot> {
    timeout(seconds(30), watch.changed()).await.expect("a set in time").unwrap()
}

async fn live(watch: &Watch, expected: &[&str]) {
    eventually(seconds(30), &format!("the live set {expected:?}"), async || match watch.latest() {
        Some(set) if set.freshness().is_live() && ids(&set) == expected => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}

async fn written(backend: &Arc<dyn Backend>, count: u64) {
    eventually(seconds(60), &format!("{count} writes"), async || {
        let status = backend.cache_status().unwrap();
        if status.written >= count { Ok(()) } else { Err(status) }
    })
    .await;
}

/// What a process that starts now without the store has of `pay`; empty if it has nothing.
async fn remembered(stage: &Stage) -> Option<Vec<String>> {
    let (backend, _link) = stage.open_without_the_store();
    let set = backend.watch("pay").ready(seconds(5)).await.ok()?;
    assert!(set.freshness().is_stale() && set.is_from_disk(), "{set:?}");
    Some(ids(&set).into_iter().map(str::to_owned).collect())
}

#[tokio::test(start_paused = true)]
async fn w13_the_disk_serves_at_once_when_the_store_refuses() {
    let stage = Stage::new();
    stage.left(&["a", "b"]).await;
    let (backend, link) = stage.open_without_the_store();
    let begun = Instant::now();
    let watch = backend.watch("pay");
    let set = watch.ready(seconds(5)).await.unwrap();
    assert!(begun.elapsed() < millis(100), "{:?}", begun.elapsed());
    assert_eq!(ids(&set), ["a", "b"]);
    assert!(set.is_from_disk() && set.held() == 0 && set.unreadable() == 0);
    let cause = set.freshness().cause().unwrap().to_string();
    assert!(cause.contains("the link is cut"), "{cause}");
    link.pass();
    live(&watch, &["a", "b"]).await;
    assert!(!watch.latest().unwrap().is_from_disk());
}

#[tokio::test(start_paused = true)]
async fn w01_a_store_that_answers_is_never_preceded_by_the_disk() {
    let stage = Stage::new();
    stage.left(&["a", "b", "c"]).await;
    stage.store.delete_raw(&path("c"));
    let (backend, link) = stage.open();
    link.delay(millis(200));
    let first = first(&mut backend.watch("pay")).await;
    assert!(first.freshness().is_live(), "{first:?}");
    assert_eq!(ids(&first), ["a", "b"], "less than half was missing, so the store is believed");
}

#[tokio::test(start_paused = true)]
async fn w13_a_store_that_is_silent_is_waited_for_a_second() {
    let stage = Stage::new();
    stage.left(&["a"]).await;
    let (backend, link) = stage.open();
    link.stop();
    let begun = Instant::now();
    let watch = backend.watch("pay");
    let set = watch.ready(seconds(5)).await.unwrap();
    assert!((millis(1_000)..millis(1_100)).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    let cause = set.freshness().cause().unwrap();
    assert_eq!(cause.kind(), ErrorKind::DeadlineExceeded);
    assert!(cause.message().contains("has not answered within 1s"), "{cause}");
    link.pass();
    live(&watch, &["a"]).await;
}

#[tokio::test(start_paused = true)]
async fn f06_who_may_not_read_starts_from_the_disk_too() {
    let stage = Stage::new();
    stage.left(&["a"]).await;
    stage.store.deny_reads(true);
    let (backend, _) = stage.open();
    let watch = backend.watch("pay");
    let set = watch.ready(seconds(5)).await.unwrap();
    assert_eq!(set.freshness().cause().unwrap().kind(), ErrorKind::PermissionDenied);
    stage.store.deny_reads(false);
    live(&watch, &["a"]).await;
}

/// The store was restarted empty while nobody of us ran: it is up, and says that nobody is there.
#[tokio::test(start_paused = true)]
async fn w09_a_store_that_was_emptied_while_we_were_down_empties_nothing_at_once() {
    let stage = Stage::new();
    stage.left(&["a", "b", "c"]).await;
    stage.store.restart_empty();
    let (backend, _) = stage.open();
    let mut watch = backend.watch("pay");
    let first = first(&mut watch).await;
    assert_eq!((ids(&first), first.held()), (vec!["a", "b", "c"], 3));
    assert!(first.freshness().is_stale() && !first.is_from_disk());
    put(&stage.store, "b", 1);
    eventually(seconds(1), "b", async || match watch.latest().unwrap().held() {
        2 => Ok(()),
        held => Err(held),
    })
    .await;
    stays(seconds(8), "the hold", async || match watch.latest().unwrap().len() {
        3 => Ok(()),
        len => Err(len),
    })
    .await;
    live(&watch, &["b"]).await;
    // Only now, and not while it was held.
    written(&backend, 1).await;
    drop((watch, backend));
    assert_eq!(remembered(&stage).await.unwrap(), ["b"]);
}

/// A deployment while nobody of us ran is no loss of data.
#[tokio::test(start_paused = true)]
async fn w09_who_was_replaced_while_we_were_down_is_not_held() {
    let stage = Stage::new();
    stage.left(&["a", "b", "c"]).await;
    for id in ["a", "b", "c"] {
        stage.store.delete_raw(&path(id));
    }
    for id in ["c", "d", "e"] {
        put(&stage.store, id, 1);
    }
    let (backend, _) = stage.open();
    let first = first(&mut backend.watch("pay")).await;
    assert!(first.freshness().is_live() && first.held() == 0, "{first:?}");
    assert_eq!(ids(&first), ["c", "d", "e"]);
}

#[tokio::test(start_paused = true)]
async fn w09_without_the_brake_the_first_answer_is_believed() {
    let mut stage = Stage::new();
    stage.left(&["a", "b"]).await;
    stage.store.restart_empty();
    stage.policy.brake = Brake::Off;
    let (backend, _) = stage.open();
    let first = first(&mut backend.watch("pay")).await;
    assert!(first.is_empty() && first.freshness().is_live());
}

/// What is held, stale or from the disk is not written: a process that was killed meanwhile left the last good set.
#[tokio::test(start_paused = true)]
async fn only_live_sets_are_written() {
    let stage = Stage::new();
    stage.left(&["a", "b", "c"]).await;
    let (backend, _) = stage.open();
    let watch = backend.watch("pay");
    live(&watch, &["a", "b", "c"]).await;
    stage.store.restart_empty();
    eventually(seconds(3), "the hold", async || match watch.latest().unwrap().held() {
        3 => Ok(()),
        held => Err(held),
    })
    .await;
    put(&stage.store, "d", 1);
    sleep(seconds(3)).await;
    assert_eq!((watch.latest().unwrap().len(), watch.latest().unwrap().held()), (4, 3));
    assert_eq!(remembered(&stage).await.unwrap(), ["a", "b", "c"], "a held set is on the disk");
    // That one was from the disk, and did not make itself younger.
    let (second, _) = stage.open_without_the_store();
    let from_disk = second.watch("pay").ready(seconds(5)).await.unwrap();
    assert_eq!(second.cache_status().unwrap().written, 0);
    assert_eq!(ids(&from_disk), ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_was_scaled_to_zero_does_not_come_back() {
    let stage = Stage::new();
    stage.left(&["a"]).await;
    let (backend, _) = stage.open();
    let watch = backend.watch("pay");
    live(&watch, &["a"]).await;
    stage.store.delete_raw(&path("a"));
    live(&watch, &[]).await;
    written(&backend, 2).await;
    drop((watch, backend));
    assert_eq!(remembered(&stage).await.unwrap(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn l03_a_change_every_millisecond_is_written_once_a_second() {
    let stage = Stage::new();
    put(&stage.store, "a", 1);
    let (backend, _) = stage.open();
    let watch = backend.watch("pay");
    live(&watch, &["a"]).await;
    for weight in 2..=10_001 {
        put(&stage.store, "a", weight);
        sleep(millis(1)).await;
    }
    let status = backend.cache_status().unwrap();
    assert!((8..=13).contains(&status.written), "{status:?}");
    sleep(seconds(2)).await;
    let idle = backend.cache_status().unwrap().written;
    sleep(seconds(300)).await;
    assert_eq!(backend.cache_status().unwrap().written, idle, "a set that does not change is written");
    sleep(seconds(1_200)).await;
    assert!((1..=3).contains(&(backend.cache_status().unwrap().written - idle)), "it is to be confirmed now and then");
    let (second, _link) = stage.open_without_the_store();
    let set = second.watch("pay").ready(seconds(5)).await.unwrap();
    assert_eq!(set.get("a").unwrap().weight(), 10_001);
}

#[tokio::test(start_paused = true)]
async fn w06_the_last_good_value_is_remembered_across_a_restart() {
    let stage = Stage::new();
    stage.left(&["a", "b"]).await;
    stage.store.put_raw(&path("a"), b"{");
    let (backend, _) = stage.open();
    let watch = backend.watch("pay");
    live(&watch, &["a", "b"]).await;
    assert_eq!(watch.latest().unwrap().unreadable(), 1);
    stage.store.delete_raw(&path("a"));
    live(&watch, &["b"]).await;
    assert_eq!(watch.latest().unwrap().unreadable(), 0);
}

#[tokio::test(start_paused = true)]
async fn w11_neither_services_nor_namespaces_mix() {
    let stage = Stage::new();
    stage.left(&["a"]).await;
    let (backend, link) = stage.open_without_the_store();
    for other in ["PAY", "pay ", "pay/v2", "services"] {
        assert!(backend.watch(other).ready(seconds(3)).await.is_err(), "{other}");
    }
    assert!(backend.services(seconds(3)).await.is_err(), "nobody watched the list");
    let (elsewhere, other_link) = stage.store.open("/other", stage.policy.clone()).unwrap();
    other_link.cut();
    assert!(elsewhere.watch("pay").ready(seconds(3)).await.is_err());
    drop(link);
}

#[tokio::test(start_paused = true)]
async fn what_is_too_old_is_not_served() {
    let mut stage = Stage::new();
    stage.left(&["a"]).await;
    stage.policy.cache = Some(DiskCache::new(stage.folder()).with_max_age(Duration::ZERO));
    assert_eq!(remembered(&stage).await, None);
}

#[tokio::test(start_paused = true)]
async fn the_list_of_services_is_remembered_too() {
    let stage = Stage::new();
    put(&stage.store, "a", 1);
    let (backend, _) = stage.open();
    let list = backend.services(seconds(5)).await.unwrap();
    assert!(list.freshness().is_live());
    written(&backend, 1).await;
    drop(backend);
    stage.store.delete_raw(&path("a"));
    let (backend, link) = stage.open_without_the_store();
    let watch = backend.watch_services();
    let list = watch.ready(seconds(5)).await.unwrap();
    assert!(list.freshness().is_stale() && list.names().contains("pay"), "{list:?}");
    link.pass();
    eventually(seconds(30), "the store's list", async || {
        let list = watch.latest().unwrap();
        if list.freshness().is_live() && list.names().is_empty() { Ok(()) } else { Err(list) }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_balancer_serves_from_the_disk_and_knows_how_old_it_is() {
    let stage = Stage::new();
    stage.left(&["a", "b"]).await;
    let (backend, _link) = stage.open_without_the_store();
    let balancer = Balancer::new(backend.watch("pay"), RoundRobin::new());
    balancer.pick_within(&Context::default(), seconds(1)).await.unwrap().finish(Outcome::Success);
    let options = BalancerOptions::default().with_stale(StalePolicy::RefuseAfter(Duration::ZERO));
    let strict = Balancer::with_options(backend.watch("pay"), RoundRobin::new(), options);
    assert!(strict.pick_within(&Context::default(), seconds(2)).await.is_err());
    assert!(balancer.freshness().since().unwrap().elapsed() < seconds(600));
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_cannot_be_used_fails_no_watch_and_is_tried_again() {
    let stage = Stage::new();
    std::fs::write(stage.folder(), "a file where the directory should be").unwrap();
    put(&stage.store, "a", 1);
    let (backend, _) = stage.open();
    let watch = backend.watch("pay");
    live(&watch, &["a"]).await;
    eventually(seconds(5), "the failure", async || match backend.cache_status().unwrap() {
        status if status.failed > 0 && status.failure.is_some() && status.refused > 0 => Ok(()),
        status => Err(status),
    })
    .await;
    std::fs::remove_file(stage.folder()).unwrap();
    eventually(seconds(60), "a success", async || match backend.cache_status().unwrap() {
        status if status.written > 0 && status.failure.is_none() => Ok(()),
        status => Err(status),
    })
    .await;
    assert_eq!(stage.files().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn whatever_lies_in_a_files_place_is_as_if_there_were_none() {
    let stage = Stage::new();
    stage.left(&["a"]).await;
    // A handle writes once more at its end, which must not fall on the garbage.
    sleep(seconds(3)).await;
    let file = stage.files().pop().unwrap();
    let whole = std::fs::read(&file).unwrap();
    let half = &whole[..whole.len() / 2];
    for garbage in [&b""[..], b"garbage", half, &[0; 4096]] {
        std::fs::write(&file, garbage).unwrap();
        assert_eq!(remembered(&stage).await, None);
        let (backend, _) = stage.open();
        live(&backend.watch("pay"), &["a"]).await;
        written(&backend, 1).await;
        drop(backend);
        sleep(seconds(3)).await;
        assert_eq!(remembered(&stage).await.unwrap(), ["a"], "it is replaced by a good one");
    }
}

/// Several handles, as if of several processes, on one directory.
#[tokio::test(start_paused = true)]
async fn handles_that_share_a_directory_leave_whole_files_and_nothing_else() {
    let stage = Stage::new();
    let handles: Vec<_> = (0..8).map(|_| stage.open().0).collect();
    let watches: Vec<_> = handles.iter().map(|handle| handle.watch("pay")).collect();
    let registrations: Vec<_> = (0..3).map(|n| instance(&n.to_string(), 1)).collect();
    let mut held = Vec::new();
    for (instance, handle) in registrations.into_iter().zip(&handles) {
        held.push(handle.register(instance, RegisterOptions::default()).await.unwrap());
        sleep(millis(700)).await;
    }
    for (handle, watch) in handles.iter().zip(&watches) {
        live(watch, &["0", "1", "2"]).await;
        let before = handle.cache_status().unwrap();
        written(handle, before.written.max(1)).await;
    }
    sleep(seconds(3)).await;
    assert!(handles.iter().all(|handle| handle.cache_status().unwrap().failed == 0));
    assert_eq!(stage.files().len(), 1, "{:?}", stage.files());
    assert_eq!(remembered(&stage).await.unwrap(), ["0", "1", "2"]);
}

/// No name of a service reaches out of the directory, and any is kept.
#[tokio::test(start_paused = true)]
async fn any_name_of_a_service_is_kept_in_the_directory() {
    let stage = Stage::new();
    let long = "x".repeat(255);
    let names =
        ["../../etc/passwd", "/", ".", "..", "CON", "a\\b:c*?\"<>|", "Ä漢字🦀", "con.", &long, "pay", "PAY", "Pay"];
    let (backend, _) = stage.open();
    let mut watches = Vec::new();
    for name in names {
        let instance = Instance::builder(name).id(name).endpoint("grpc://h:1").build().unwrap();
        let key = discovery_core::KeySpace::new("").unwrap().key(&instance.key());
        stage.store.put_raw(&key, &encode(&instance));
        watches.push(backend.watch(name));
    }
    written(&backend, names.len() as u64).await;
    drop((watches, backend));
    assert_eq!(stage.files().len(), names.len());
    let (backend, _link) = stage.open_without_the_store();
    for name in names {
        let set = backend.watch(name).ready(seconds(5)).await.unwrap();
        assert_eq!(ids(&set), [name]);
    }
    let outside: Vec<_> = std::fs::read_dir(stage.above.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(outside.iter().map(PathBuf::as_path).collect::<Vec<&Path>>(), [stage.folder()]);
}
