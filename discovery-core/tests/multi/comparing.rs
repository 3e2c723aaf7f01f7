//! The report about two registries.

use std::convert::Infallible;
use std::time::Duration;

use discovery_core::multi::{Difference, Mode, compare};
use discovery_core::{Instance, State};

use crate::{Stage, instance, put, register, until, weighing};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn equal_sides_are_equal_at_once() {
    let stage = Stage::new();
    let handle = stage.handle(Mode::Union);
    let _held = [register(&*handle.both, instance("a")).await, register(&*handle.both, instance("b")).await];
    let begun = tokio::time::Instant::now();
    let report = compare(&*stage.alone[0], &*stage.alone[1], 10 * SECOND).await.unwrap();
    assert!(report.is_equal() && begun.elapsed() < SECOND, "{report}");
    assert_eq!(report.to_string(), "equal: 1 services with 2 instances");
    let [first, second] = [Stage::new(), Stage::new()];
    assert!(compare(&*first.alone[0], &*second.alone[0], SECOND).await.unwrap().is_equal());
}

#[tokio::test(start_paused = true)]
async fn each_difference_is_said_in_the_words_of_the_record() {
    let stage = Stage::new();
    put(&stage, 0, &instance("a"));
    put(&stage, 1, &instance("b"));
    let c = weighing("c", 1);
    put(&stage, 0, &c);
    let other = c.to_builder().weight(2).zone("z").version("2").state(State::Draining).metadata("token", "hunter2");
    put(&stage, 1, &other.build().unwrap());
    put(&stage, 1, &Instance::builder("other").id("o").endpoint("grpc://h:1").build().unwrap());
    put(&stage, 0, &weighing("same", 5).to_builder().started_at(std::time::UNIX_EPOCH).build().unwrap());
    put(&stage, 1, &weighing("same", 5).to_builder().started_at(std::time::UNIX_EPOCH).build().unwrap());
    stage.stores[0].put_raw("/discovery/bad/x", b"{");
    let report = compare(&*stage.alone[0], &*stage.alone[1], SECOND).await.unwrap();
    assert!(!report.is_equal());
    let expected = "bad: 1 records of the first registry and 0 of the second cannot be read
other: o is only on the second registry
pay: a is only on the first registry
pay: b is only on the second registry
pay: c differs in weight (1, 2), zone (None, Some(\"z\")), version (None, Some(\"2\")), state (Serving, Draining), metadata \"token\"
different: 3 of 3 services";
    assert_eq!(report.to_string(), expected);
}

/// What comes and goes reaches one registry first; that is no difference.
#[tokio::test(start_paused = true)]
async fn what_is_on_its_way_is_waited_for() {
    let stage = Stage::new();
    put(&stage, 0, &instance("a"));
    let late = async {
        tokio::time::sleep(2 * SECOND).await;
        stage.stores[0].delete_raw("/discovery/pay/a");
    };
    let (report, ()) = tokio::join!(compare(&*stage.alone[0], &*stage.alone[1], 10 * SECOND), late);
    assert!(report.unwrap().is_equal());
}

/// In a fleet somebody is always on the way; only who stays different is reported.
#[tokio::test(start_paused = true)]
async fn of_a_fleet_that_never_rests_only_what_stays_is_reported() {
    for (only_first, expected) in [(None, vec!["left-behind"]), (Some("forgotten"), vec!["forgotten", "left-behind"])] {
        let stage = Stage::new();
        only_first.iter().for_each(|id| put(&stage, 0, &instance(id)));
        let report = tokio::select! {
            report = compare(&*stage.alone[0], &*stage.alone[1], 4 * SECOND) => report.unwrap(),
            never = restless(&stage) => match never {},
        };
        let ids: Vec<_> = report.services.values().flatten().map(id).collect();
        assert_eq!(ids, expected, "{report}");
    }
}

/// Everybody reaches the first registry a moment before the second; one changes on the first alone, all the time.
async fn restless(stage: &Stage) -> Infallible {
    let mut turn = 0;
    loop {
        let mover = weighing(&format!("n{}", turn % 50), turn);
        put(stage, 0, &mover);
        put(stage, 0, &weighing("left-behind", turn));
        put(stage, 1, &weighing("left-behind", 1_000));
        tokio::time::sleep(SECOND / 4).await;
        put(stage, 1, &mover);
        turn += 1;
    }
}

fn id(difference: &Difference) -> &str {
    match difference {
        Difference::OnlyFirst(a) | Difference::OnlySecond(a) | Difference::Record(a, _) => a.id(),
        _ => "",
    }
}

/// An error is never taken for an equal set.
#[tokio::test(start_paused = true)]
async fn of_a_registry_that_is_away_nothing_is_concluded() {
    let stage = Stage::new();
    for away in [0, 1] {
        let handle = stage.handle_without(Mode::Union, &[away]);
        let error = compare(&*handle.sides[0], &*handle.sides[1], 3 * SECOND).await.unwrap_err();
        assert!(error.to_string().contains("the link is cut"), "{error}");
        handle.links[away].pass();
        assert!(compare(&*handle.sides[0], &*handle.sides[1], 10 * SECOND).await.unwrap().is_equal());
        // A list from earlier is none of today.
        let names = handle.sides[away].watch_services();
        names.ready(SECOND).await.unwrap();
        handle.links[away].cut();
        until("stale", || names.freshness().is_stale()).await;
        assert!(compare(&*handle.sides[0], &*handle.sides[1], SECOND).await.is_err());
    }
}
