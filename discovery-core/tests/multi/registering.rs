//! One registration on both sides.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use discovery_core::multi::{Mode, Multi, MultiOptions};
use discovery_core::store::Capabilities;
use discovery_core::{
    Backend, Discovery, Error, ErrorKind, Instance, RegisterOptions, Registration, RegistrationState, Registry, Result,
    ServiceNames, State, Watch,
};
use tokio::time::Instant;

use crate::{Handle, Stage, ids, instance, lasts, register, until};

const SECOND: Duration = Duration::from_secs(1);

fn cause(registration: &Registration) -> String {
    match registration.state() {
        RegistrationState::Reconnecting(_, cause) => cause.to_string(),
        state => format!("{state:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn r01_both_have_the_record_when_register_returns() {
    let stage = Stage::new();
    let handle = stage.handle(Mode::Union);
    handle.links[1].delay(SECOND / 10);
    let a = register(&*handle.both, instance("a")).await;
    assert_eq!(stage.stored(0, "a"), Some(a.instance()));
    assert_eq!(stage.stored(1, "a"), Some(a.instance()));
    assert!(a.state().is_registered());
}

/// R4, R11: whoever starts while one side is away is registered on the other, and there when it comes.
#[tokio::test(start_paused = true)]
async fn r04_a_side_that_is_away_keeps_no_service_from_starting() {
    for away in [0, 1] {
        let stage = Stage::new();
        let handle = stage.handle_without(Mode::Union, &[away]);
        let begun = Instant::now();
        let a = register(&*handle.both, instance("a")).await;
        assert!(begun.elapsed() < 3 * SECOND, "{:?}", begun.elapsed());
        assert!(stage.stored(1 - away, "a").is_some());
        assert!(cause(&a).contains("the link is cut"), "{}", cause(&a));
        // It is tried for ever, and needs no restart.
        tokio::time::sleep(600 * SECOND).await;
        handle.links[away].pass();
        until("the state", || a.state().is_registered()).await;
        assert_eq!(stage.stored(away, "a"), Some(a.instance()));
    }
}

#[tokio::test(start_paused = true)]
async fn r01_without_any_side_it_fails_by_its_deadline_and_leaves_nothing() {
    let stage = Stage::new();
    let handle = stage.handle_without(Mode::Union, &[0, 1]);
    let options = RegisterOptions::default().with_deadline(3 * SECOND);
    let error = handle.both.register(instance("a"), options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
    assert_eq!(error.to_string().matches("the link is cut").count(), 2, "{error}");
    handle.links.iter().for_each(|link| link.pass());
    lasts(20 * SECOND, "its absence", || (0..2).all(|at| stage.stored(at, "a").is_none())).await;
}

#[tokio::test(start_paused = true)]
async fn r02_it_is_deregistered_once_it_is_gone_from_both() {
    let stage = Stage::new();
    let handle = stage.handle(Mode::Union);
    let a = register(&*handle.both, instance("a")).await;
    // The side keeps its lease, but nobody can be told to give it up.
    handle.links[1].swallow_replies();
    handle.links[1].cut();
    let error = a.deregister().await.unwrap_err();
    assert!(error.to_string().contains("the link is cut"), "{error}");
    assert!(stage.stored(0, "a").is_none(), "one side waited for the other");
    handle.links[1].pass();
    a.deregister_within(20 * SECOND).await.unwrap();
    assert!(stage.stored(1, "a").is_none());
    assert!(matches!(a.state(), RegistrationState::Closed));
    a.deregister().await.unwrap();
}

/// R2: on a side that was never reached there is nothing to remove, so nobody waits for it.
#[tokio::test(start_paused = true)]
async fn r02_what_was_never_sent_need_not_be_removed() {
    let stage = Stage::new();
    let handle = stage.handle_without(Mode::Union, &[0]);
    let a = register(&*handle.both, instance("a")).await;
    let begun = Instant::now();
    a.deregister().await.unwrap();
    assert!(begun.elapsed() < SECOND && stage.stored(1, "a").is_none());
    handle.links[0].pass();
    lasts(20 * SECOND, "its absence", || stage.stored(0, "a").is_none()).await;
}

/// R6: a newer owner on one side supersedes the whole, which leaves the other side, too.
#[tokio::test(start_paused = true)]
async fn r06_a_newer_owner_on_one_side_supersedes_the_whole() {
    let stage = Stage::new();
    let handle = stage.handle(Mode::Union);
    let former = register(&*handle.both, instance("a")).await;
    let newer = register(&*stage.alone[0], instance("a").to_builder().weight(7).build().unwrap()).await;
    until("superseded", || matches!(former.state(), RegistrationState::Superseded)).await;
    assert_eq!(former.update(|i| i.weight(1)).await.unwrap_err().kind(), ErrorKind::Superseded);
    until("it is gone from the other side", || stage.stored(1, "a").is_none()).await;
    former.deregister().await.unwrap();
    drop(former);
    lasts(20 * SECOND, "the newer record", || stage.stored(0, "a") == Some(newer.instance())).await;
    assert!(newer.state().is_registered());
}

/// R6: of two owners on both sides the newer takes over on each, and no watcher of either sees a removal.
#[tokio::test(start_paused = true)]
async fn r06_a_newer_owner_on_both_sides_takes_over_without_a_gap() {
    let stage = Stage::new();
    let (one, two) = (stage.handle(Mode::Union), stage.handle(Mode::Union));
    two.links[1].delay(SECOND / 10);
    let former = register(&*one.both, instance("a")).await;
    let watches = [0, 1].map(|at| stage.alone[at].watch("pay"));
    for watch in &watches {
        crate::shows(watch, &["a"]).await;
    }
    let seen = watches.each_ref().map(crate::Seen::of);
    let newer = register(&*two.both, instance("a").to_builder().weight(7).build().unwrap()).await;
    until("superseded", || matches!(former.state(), RegistrationState::Superseded)).await;
    drop(former);
    lasts(10 * SECOND, "the newer one", || {
        newer.state().is_registered() && (0..2).all(|at| stage.stored(at, "a") == Some(newer.instance()))
    })
    .await;
    for (backend, seen) in stage.alone.iter().zip(seen) {
        backend.close(SECOND).await.unwrap();
        assert!(seen.all().await.iter().all(|set| ids(set) == ["a"]));
    }
}

#[tokio::test(start_paused = true)]
async fn r07_an_update_reaches_the_side_that_is_away_when_it_comes_back() {
    let stage = Stage::new();
    let handle = stage.handle(Mode::Union);
    let a = register(&*handle.both, instance("a")).await;
    handle.links[0].cut();
    let begun = Instant::now();
    a.update(|i| i.weight(7)).await.unwrap();
    assert!(begun.elapsed() < 3 * SECOND && stage.stored(1, "a").unwrap().weight() == 7);
    assert!(cause(&a).contains("the link is cut"), "{}", cause(&a));
    handle.links[0].pass();
    until("the update", || stage.stored(0, "a").is_some_and(|a| a.weight() == 7)).await;
    until("the state", || a.state().is_registered()).await;
}

/// R9: a drain is seen on the side that is there, and ends; the other one is named.
#[tokio::test(start_paused = true)]
async fn r09_a_drain_is_seen_although_one_side_is_away() {
    let stage = Stage::new();
    let (handle, reader) = (stage.handle(Mode::Union), stage.handle(Mode::Union));
    let a = register(&*handle.both, instance("a")).await;
    let watch = reader.both.watch("pay");
    crate::shows(&watch, &["a"]).await;
    handle.links[0].cut();
    reader.links[0].cut();
    until("stale", || watch.freshness().is_stale()).await;
    let (drained, ()) = tokio::join!(a.drain(3 * SECOND), async {
        until("draining", || watch.latest().unwrap().get("a").is_some_and(|a| a.state() == State::Draining)).await;
    });
    assert!(drained.unwrap_err().to_string().contains("the link is cut"));
    crate::shows(&watch, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn r10_what_is_dropped_leaves_both() {
    let stage = Stage::new();
    let handle = stage.handle(Mode::Union);
    let kept = register(&*handle.both, instance("kept")).await;
    drop(register(&*handle.both, instance("a")).await);
    until("the removal", || (0..2).all(|at| stage.stored(at, "a").is_none())).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let Handle { both, sides, links } = handle;
    drop((both, sides, kept));
    until("the removal of the other", || (0..2).all(|at| stage.stored(at, "kept").is_none())).await;
    drop((links, stage));
    until("the end of all tasks", || tasks() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn r10_closing_closes_all_sides_and_says_which_could_not() {
    let stage = Stage::new();
    let handle = stage.handle(Mode::Union);
    let a = register(&*handle.both, instance("a")).await;
    handle.links[1].cut();
    let error = handle.both.close(2 * SECOND).await.unwrap_err();
    assert_eq!(error.to_string().matches("the link is cut").count(), 1, "{error}");
    assert!(stage.stored(0, "a").is_none());
    assert!(!matches!(a.state(), RegistrationState::Closed), "it is not gone from all");
    assert_eq!(handle.both.begin(instance("b")).unwrap_err().kind(), ErrorKind::Closed);
    handle.links[1].pass();
    handle.both.close(20 * SECOND).await.unwrap();
    assert!(stage.stored(1, "a").is_none() && matches!(a.state(), RegistrationState::Closed));
}

/// A registry that refuses writes for good while it is told to, and takes small records only.
#[derive(Debug)]
struct Refusing {
    inner: Arc<dyn Backend>,
    capabilities: Capabilities,
    refuses: AtomicBool,
}

#[async_trait]
impl Registry for Refusing {
    fn begin(&self, instance: Instance) -> Result<Registration> {
        if self.refuses.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::PermissionDenied, "register", instance.key().to_string(), "not you"));
        }
        self.inner.begin(instance)
    }
}

impl Discovery for Refusing {
    fn watch(&self, service: &str) -> Watch {
        self.inner.watch(service)
    }

    fn watch_services(&self) -> Watch<ServiceNames> {
        self.inner.watch_services()
    }
}

#[async_trait]
impl Backend for Refusing {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn address(&self) -> String {
        "refusing:".to_owned()
    }

    async fn source_address(&self) -> Option<IpAddr> {
        Some(IpAddr::from([127, 0, 0, 1]))
    }

    async fn close(&self, deadline: Duration) -> Result<()> {
        self.inner.close(deadline).await
    }
}

fn refusing(stage: &Stage, refuses: bool) -> (Arc<Multi>, Arc<Refusing>) {
    let inner = stage.stores[1].connect();
    let capabilities = Capabilities { max_record: 300, min_ttl: SECOND, ..inner.capabilities().clone() };
    let side = Arc::new(Refusing { inner, capabilities, refuses: AtomicBool::new(refuses) });
    let both = Multi::new(vec![stage.alone[0].clone(), side.clone()], MultiOptions::default()).unwrap();
    (both, side)
}

/// R1: a side that refuses for good stops a rollout at its first instance; later it is tried again, and the state says so.
#[tokio::test(start_paused = true)]
async fn r01_a_side_that_refuses_fails_the_first_registration_and_no_later_repair() {
    let stage = Stage::new();
    let (both, side) = refusing(&stage, true);
    let error = both.register(instance("a"), RegisterOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert!(error.to_string().contains("refusing:: cannot register"), "{error}");
    until("nothing is left", || (0..2).all(|at| stage.stored(at, "a").is_none())).await;

    side.refuses.store(false, Ordering::Relaxed);
    let a = register(&*both, instance("a")).await;
    assert!(a.state().is_registered());
    side.refuses.store(true, Ordering::Relaxed);
    assert_eq!(a.update(|i| i.weight(7)).await.map_err(|e| e.to_string()), Ok(()), "what is held is held");
    side.inner.close(SECOND).await.unwrap();
    until("its end", || stage.stored(1, "a").is_none()).await;
    lasts(60 * SECOND, "the other side's record", || stage.stored(0, "a").is_some_and(|a| a.weight() == 7)).await;
}

/// R12: what one side cannot take is refused before any gets it.
#[tokio::test(start_paused = true)]
async fn r12_the_smallest_limit_of_the_sides_counts() {
    let stage = Stage::new();
    let (both, _) = refusing(&stage, false);
    let capabilities = both.capabilities();
    assert_eq!((capabilities.max_record, capabilities.min_ttl, capabilities.registers), (300, SECOND, true));
    let large = instance("a").to_builder().metadata("padding", "x".repeat(300)).build().unwrap();
    let before = stage.stores.each_ref().map(|store| store.revision());
    let error = both.register(large, RegisterOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert_eq!(stage.stores.each_ref().map(|store| store.revision()), before);
    assert_eq!(both.source_address().await, Some(IpAddr::from([127, 0, 0, 1])));
    assert_eq!(both.address(), "multi: memory:///discovery refusing:");
}

/// A fixed list beside a registry: discovered from, never registered in.
#[tokio::test(start_paused = true)]
async fn a_side_that_takes_no_registrations_takes_no_part_in_them() {
    let stage = Stage::new();
    let fixed = discovery_core::fixed::connect(&"static:///10.0.0.9:1".parse().unwrap()).unwrap();
    let both = Multi::new(vec![stage.alone[0].clone(), fixed.clone()], MultiOptions::default()).unwrap();
    let a = register(&*both, instance("a")).await;
    assert!(a.state().is_registered() && both.capabilities().max_record < usize::MAX);
    crate::shows(&both.watch("pay"), &["10.0.0.9:1", "a"]).await;
    let fixed = Multi::new(vec![fixed.clone(), fixed], MultiOptions::default()).unwrap();
    let error = fixed.register(instance("a"), RegisterOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(Multi::new(vec![stage.alone[0].clone()], MultiOptions::default()).is_err());
}
