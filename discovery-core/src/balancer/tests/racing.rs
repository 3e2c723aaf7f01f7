//! Many threads pick while the set shrinks to nothing and grows again, through every picker (F12, P8).

use std::collections::VecDeque;
use std::sync::atomic::AtomicUsize;

use super::*;
use crate::conformance::eventually;
use crate::picker::testing::{EVERY, Kind};
use crate::{KeySpace, encode};

const THREADS: usize = 8;
const ROUNDS: usize = 2;
/// How long the set may take to get through, beside eight threads that pick all the time.
const SOON: Duration = Duration::from_secs(30);

/// Who is in the set with which weight, in the order of the steps. On the way from one to the next, nobody can be picked only if that holds for
/// one of them: who joins is written first, and who leaves last.
const STEPS: [&[(&str, u32)]; 8] = [
    &[],
    &[("a", 1), ("b", 1), ("c", 1), ("d", 1), ("e", 1)],
    &[("c", 7)],
    &[("a", 4), ("b", 0), ("c", 3)],
    &[("a", 0), ("b", 0), ("c", 0)],
    &[("a", 100), ("c", 1), ("d", 250), ("e", 30), ("f", 0), ("g", 2)],
    &[],
    &[("a", 2), ("b", 3), ("c", 2)],
];

fn step(number: usize) -> &'static [(&'static str, u32)] {
    STEPS[number % STEPS.len()]
}

/// The steps that a pick may have seen which began and ended at these: a selection takes a moment to follow.
fn seen(before: usize, after: usize) -> impl Iterator<Item = &'static [(&'static str, u32)]> {
    (before.saturating_sub(1)..=after).map(step)
}

/// What became of requests: successes, failures, those that got no connection, cancelled.
type Ends = [u64; 4];
const OUTCOMES: [Outcome; 4] = [Outcome::Success, Outcome::Failure, Outcome::Unreachable, Outcome::Cancelled];

/// Picks with a reader and without, with keys and without, keeps some open across changes, and gives some back.
fn pick_until(stop: &AtomicBool, balancer: &Balancer, now: &AtomicUsize, seed: usize) -> Ends {
    let (mut reader, mut open, mut ends) = (balancer.reader(), VecDeque::new(), Ends::default());
    let mut end = |pick: Pick, turn: usize| match turn % 9 {
        8 => pick.discard(),
        turn => {
            // Failures are few enough for somebody to be left.
            let at = [0, 0, 1, 0, 3, 0, 2, 0][turn];
            ends[at] += 1;
            match OUTCOMES[at] {
                Outcome::Cancelled => drop(pick),
                outcome => pick.finish(outcome),
            }
        }
    };
    let mut turn = seed;
    while !stop.load(Ordering::Relaxed) || turn < seed + 200 {
        turn += 1;
        let key = (turn / 4 % 50).to_le_bytes();
        let context = if turn % 4 < 2 { Context::default() } else { Context::default().with_key(&key) };
        let before = now.load(Ordering::SeqCst);
        let picked = if turn.is_multiple_of(2) { reader.pick(&context) } else { balancer.pick(&context) };
        let after = now.load(Ordering::SeqCst);
        match picked {
            Ok(pick) => {
                let id = pick.instance().id().to_owned();
                assert!(seen(before, after).flatten().any(|(other, _)| *other == id), "{id} in {before} to {after}");
                open.push_back(pick);
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoInstance);
                let nobody = |step: &[(&str, u32)]| step.iter().all(|(_, weight)| *weight == 0);
                assert!(seen(before, after).any(nobody), "{error} in {before} to {after}");
                std::thread::yield_now();
            }
        }
        if open.len() > turn % 7 {
            open.drain(..open.len() / 2 + 1).zip(turn..).for_each(|(pick, turn)| end(pick, turn));
        }
    }
    open.into_iter().for_each(|pick| end(pick, 0));
    ends
}

async fn race(kind: &Kind) {
    let (store, backend, _) = opened();
    let space = KeySpace::new(KeySpace::DEFAULT_PREFIX).unwrap();
    let balancer = Balancer::new(backend.watch("pay"), (kind.factory)());
    let (stop, now) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let threads: Vec<_> = (0..THREADS)
        .map(|n| {
            let (stop, balancer, now) = (stop.clone(), balancer.clone(), now.clone());
            std::thread::spawn(move || pick_until(&stop, &balancer, &now, n * 1_000))
        })
        .collect();
    // Everybody who ever was there; who comes back under the same id is another one.
    let mut all: Vec<Member> = Vec::new();
    for number in 1..ROUNDS * STEPS.len() {
        now.store(number, Ordering::SeqCst);
        let (former, next) = (step(number - 1), step(number));
        let is_former = |(id, _): &(&str, u32)| former.iter().any(|(other, _)| other == id);
        let (stays, joins): (Vec<_>, Vec<_>) = next.iter().copied().partition(is_former);
        for (id, weight) in joins.into_iter().chain(stays) {
            let instance = instance(id, weight);
            store.put_raw(&space.key(&instance.key()), &encode(&instance));
        }
        for (id, _) in former.iter().filter(|(id, _)| !next.iter().any(|(other, _)| other == id)) {
            store.delete_raw(&space.key(&instance(id, 1).key()));
        }
        for (id, _) in next {
            balancer.set_available(id, number % 3 > 0 || *id > "b");
            let is_healthy = number % 2 > 0 || *id < "c";
            balancer.set_health(id, if is_healthy { Condition::Healthy } else { Condition::Unhealthy("slow".into()) });
        }
        eventually(SOON, "the balancer to follow", async || {
            let shared = &balancer.inner.shared;
            let known: Vec<_> = balancer.members().iter().map(|m| (m.instance().id().to_owned(), m.weight())).collect();
            let is_known = known.iter().map(|(id, weight)| (&**id, *weight)).eq(next.iter().copied());
            // Readers go by the number, which is stored last.
            if is_known && !shared.is_older(&shared.selection.load()) { Ok(()) } else { Err(known) }
        })
        .await;
        for member in balancer.members() {
            if !all.iter().any(|other| Arc::ptr_eq(other.cell(), member.cell())) {
                all.push(member);
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    let mut ends = Ends::default();
    for thread in threads {
        let theirs = thread.join().unwrap_or_else(|_| panic!("{} fails", kind.name));
        ends.iter_mut().zip(theirs).for_each(|(sum, end)| *sum += end);
    }
    assert!(all.iter().all(|member| member.pending() == 0), "{}: {all:?}", kind.name);
    let counted = OUTCOMES.map(|outcome| all.iter().map(|member| member.count(outcome)).sum::<u64>());
    assert_eq!(counted, ends, "{}", kind.name);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f12_p08_every_picker_while_the_set_shrinks_and_grows() {
    for kind in &EVERY {
        race(kind).await;
    }
}
