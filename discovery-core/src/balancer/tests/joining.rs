//! Who joins beside a fleet under load, through every picker (P7), on paused time and by a clock that stands still.

use super::*;
use crate::picker::testing::EVERY;
use crate::picker::{DubboRing, GoZeroRing, Ketama, PeakEwma};
use crate::{Clock, SlowStart};

const WINDOW: Duration = Duration::from_secs(600);

fn options() -> BalancerOptions {
    BalancerOptions::default().with_slow_start(SlowStart::new(WINDOW)).with_clock(Clock::manual().0)
}

fn at(number: u8, weight: u32) -> Instance {
    let builder = Instance::builder("pay").id(format!("m{number}")).endpoint(&format!("grpc://10.0.0.{number}:9000"));
    builder.weight(weight).build().unwrap()
}

/// As many as were there, and then the newcomer with the number 9.
async fn joined(
    old: u8,
    weight: u32,
    factory: Box<dyn PickerFactory>,
    before: impl FnOnce(&Balancer),
) -> (Arc<dyn Backend>, Vec<Registration>, Balancer) {
    let (backend, mut held, balancer) = balanced((0..old).map(|number| at(number, weight)), factory, options()).await;
    before(&balancer);
    held.push(registered(&backend, at(9, weight)).await);
    let ids: Vec<_> = held.iter().map(|held| held.instance().id().to_owned()).collect();
    knows(&balancer, &ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
    (backend, held, balancer)
}

fn pick(balancer: &Balancer, key: u32) -> Pick {
    balancer.pick(&Context::default().with_key(&key.to_le_bytes())).unwrap()
}

fn is_new(pick: &Pick) -> bool {
    pick.instance().id() == "m9"
}

#[tokio::test(start_paused = true)]
async fn p07_at_a_tenth_nobody_gets_much_more_than_that_whatever_the_load() {
    const PICKS: u32 = 6_000;
    fastrand::seed(7);
    for kind in &EVERY {
        for old in [1, 2, 9] {
            let beside = if kind.name.starts_with("Subset") { old.min(2) } else { old };
            let ideal = 0.1 / (0.1 + f64::from(beside));
            for in_flight in [0, 1, 3, 20, 100] {
                let mut open = Vec::new();
                let fill = |balancer: &Balancer| open.extend((0..in_flight).map(|key| pick(balancer, key)));
                let (_backend, _held, balancer) = joined(old, 100, (kind.factory)(), fill).await;
                let mut news = 0;
                let mut first = 0;
                for key in 0..PICKS {
                    let pick = pick(&balancer, key + 1_000);
                    news += u32::from(is_new(&pick));
                    first += u32::from(key < 40 && is_new(&pick));
                    open.push(pick);
                    if key >= 40 || in_flight == 0 {
                        open.swap_remove(fastrand::usize(..open.len())).finish(Outcome::Success);
                    }
                }
                let share = f64::from(news) / f64::from(PICKS);
                let context = format!("{} beside {old} with {in_flight} in flight", kind.name);
                assert!(share <= 2.0 * ideal + 0.03, "{context}: {share} for {ideal}");
                // Of the first forty, four would be its share beside one.
                assert!(first <= 16, "{context}: {first} of the first");
                assert!(news > 0 || beside < old, "{context}: none");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn p06_p07_keys_move_to_a_newcomer_once_and_to_nobody_else() {
    let rings: [(Box<dyn PickerFactory>, u32); 5] = [
        (Box::new(Ketama::new()), 100),
        (Box::new(Ketama::new().with_unit(1)), 1),
        (Box::new(DubboRing), 100),
        (Box::new(GoZeroRing), 100),
        (Box::new(GoZeroRing), 10),
    ];
    for (factory, weight) in rings {
        let map = |balancer: &Balancer| {
            (0..4_000).map(|key| pick(balancer, key).instance().id().to_owned()).collect::<Vec<_>>()
        };
        let mut seen = Vec::new();
        let (_backend, _held, balancer) = joined(9, weight, factory, |balancer| seen.push(map(balancer))).await;
        for part in 0..11 {
            let now = map(&balancer);
            assert!(now == map(&balancer), "a key stays");
            let last = seen.last().unwrap();
            let moved = last.iter().zip(&now).filter(|(before, now)| before != now);
            assert!(moved.clone().all(|(_, now)| now == "m9"));
            let news = now.iter().filter(|id| *id == "m9").count();
            // A tenth of the keys, by rings as uneven as they are.
            assert!(news <= 60 * (part + 1) && (part < 10 || news > 200), "{news} in part {part}");
            seen.push(now);
            tokio::time::sleep(WINDOW / 10).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn p07_who_was_passed_over_is_not_remembered() {
    fastrand::seed(7);
    let factory = Box::new(crate::picker::Sticky::new(RoundRobin::new()));
    let (_backend, _held, balancer) = joined(1, 100, factory, |_| {}).await;
    let news = (0..2_000).filter(|key| is_new(&pick(&balancer, *key))).count();
    assert!((100..300).contains(&news), "{news}");
    assert_eq!((0..2_000).filter(|key| is_new(&pick(&balancer, *key))).count(), news);
}

/// A newcomer that hangs, and callers that give up after a second: what they waited for says enough.
#[tokio::test(start_paused = true)]
async fn who_hangs_from_the_beginning_gets_less_than_its_share() {
    fastrand::seed(7);
    let (clock, hand) = Clock::manual();
    let options = BalancerOptions::default().with_clock(clock);
    let (backend, _held, balancer) = balanced((0..9).map(|number| at(number, 100)), PeakEwma, options).await;
    let answer = |pick: Pick| {
        hand.advance(Duration::from_millis(10));
        pick.finish(Outcome::Success);
    };
    (0..500).for_each(|key| answer(pick(&balancer, key)));
    let _new = registered(&backend, at(9, 100)).await;
    knows(&balancer, &["m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "m9"]).await;
    let mut news = 0;
    for key in 0..400 {
        let pick = pick(&balancer, key);
        if is_new(&pick) {
            news += 1;
            hand.advance(Duration::from_secs(1));
        } else {
            answer(pick);
        }
    }
    assert!((1..10).contains(&news), "{news} of 400");
}
