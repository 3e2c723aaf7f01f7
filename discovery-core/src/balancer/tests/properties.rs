//! What holds whatever happens: a balancer beside a model of it, through joins, leaves, weights, lost connections and picks in any order.

use std::collections::VecDeque;

use super::*;
use proptest::prelude::*;

const OUTCOMES: [Outcome; 4] = [Outcome::Success, Outcome::Failure, Outcome::Unreachable, Outcome::Cancelled];

#[derive(Debug, Clone)]
enum Step {
    /// Joins, or has another weight from now on.
    Weigh(usize, u32),
    Leave(usize),
    Reach(usize, bool),
    /// Picks with the reader or without, and ends the pick that is open longest if there are more than so many.
    Pick {
        with_reader: bool,
        open: usize,
        outcome: usize,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pick = (any::<bool>(), 0usize..4, 0usize..5).prop_map(|(with_reader, open, outcome)| Step::Pick {
        with_reader,
        open,
        outcome,
    });
    let step = prop_oneof![
        2 => (0usize..6, 0u32..3).prop_map(|(id, weight)| Step::Weigh(id, weight)),
        1 => (0usize..6).prop_map(Step::Leave),
        1 => (0usize..6, any::<bool>()).prop_map(|(id, reachable)| Step::Reach(id, reachable)),
        6 => pick,
    ];
    proptest::collection::vec(step, 1..60)
}

/// What is known of an instance.
#[derive(Debug, Default)]
struct Known {
    weight: u32,
    is_away: bool,
    pending: u32,
    counts: [u64; 4],
    /// An instance that comes back is another one.
    life: usize,
}

struct Model {
    backend: Arc<dyn Backend>,
    balancer: Balancer,
    reader: Reader,
    held: BTreeMap<usize, Registration>,
    known: BTreeMap<usize, Known>,
    open: VecDeque<(usize, usize, Pick)>,
    lives: usize,
}

impl Model {
    async fn step(&mut self, step: Step) {
        match step {
            Step::Weigh(id, weight) => self.weigh(id, weight).await,
            Step::Leave(id) => {
                if let Some(held) = self.held.remove(&id) {
                    held.deregister().await.unwrap();
                    self.known.remove(&id);
                }
            }
            Step::Reach(id, reachable) => {
                self.balancer.set_available(&id.to_string(), reachable);
                if let Some(known) = self.known.get_mut(&id) {
                    known.is_away = !reachable;
                }
            }
            Step::Pick { with_reader, open, outcome } => self.pick(with_reader, open, outcome),
        }
        self.settle().await;
    }

    async fn weigh(&mut self, id: usize, weight: u32) {
        if let Some(held) = self.held.get(&id) {
            held.update(|it| it.weight(weight)).await.unwrap();
        } else {
            self.lives += 1;
            self.held.insert(id, registered(&self.backend, instance(&id.to_string(), weight)).await);
            self.known.insert(id, Known { life: self.lives, ..Known::default() });
        }
        self.known.entry(id).and_modify(|known| known.weight = weight);
    }

    fn pick(&mut self, with_reader: bool, open: usize, outcome: usize) {
        let context = Context::default();
        let picked = if with_reader { self.reader.pick(&context) } else { self.balancer.pick(&context) };
        let mut willing = self.known.values().filter(|known| known.weight > 0).peekable();
        let has_anybody = willing.peek().is_some();
        let has_reachable = willing.any(|known| !known.is_away);
        match picked {
            Ok(pick) => {
                let id: usize = pick.instance().id().parse().unwrap();
                let known = self.known.get_mut(&id).expect("it has left");
                assert!(known.weight > 0, "{id} has no weight");
                assert!(!known.is_away || !has_reachable, "{id} cannot be reached");
                known.pending += 1;
                self.open.push_back((id, known.life, pick));
            }
            Err(error) => assert!(!has_anybody, "{error}"),
        }
        if self.open.len() > open {
            let (id, life, pick) = self.open.pop_front().unwrap();
            let known = self.known.get_mut(&id).filter(|known| known.life == life);
            if let Some(known) = known {
                known.pending -= 1;
                if let Some(count) = known.counts.get_mut(outcome) {
                    *count += 1;
                }
            }
            match OUTCOMES.get(outcome) {
                Some(Outcome::Cancelled) => drop(pick),
                Some(outcome) => pick.finish(*outcome),
                None => pick.discard(),
            }
        }
    }

    /// Waits until the balancer has heard of everything.
    async fn settle(&self) {
        let expected: Vec<_> = self.known.iter().map(|(id, known)| (id.to_string(), known.weight)).collect();
        let mut selections = self.balancer.selections();
        loop {
            let members = self.balancer.members();
            let found: Vec<_> =
                members.iter().map(|it| (it.instance().id().to_owned(), it.instance().weight())).collect();
            if found == expected {
                break;
            }
            selections.changed().await;
        }
        heeded(&self.balancer).await;
    }

    fn check(&self) {
        for (member, (id, known)) in self.balancer.members().iter().zip(&self.known) {
            assert_eq!(member.pending(), known.pending, "in flight at {id}");
            assert_eq!(OUTCOMES.map(|outcome| member.count(outcome)), known.counts, "outcomes of {id}");
        }
    }
}

fn run(factory: Box<dyn PickerFactory>, steps: Vec<Step>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let (_, backend, _) = opened();
        let options = BalancerOptions::default().with_outliers(None);
        let balancer = Balancer::with_options(backend.watch("pay"), factory, options);
        let reader = balancer.reader();
        let mut model = Model {
            backend,
            balancer,
            reader,
            held: BTreeMap::new(),
            known: BTreeMap::new(),
            open: VecDeque::new(),
            lives: 0,
        };
        for step in steps {
            model.step(step).await;
            model.check();
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// No pick panics or fails while anybody has weight (P1), nobody without weight is picked (P2), nor who cannot be reached while others can
    /// (P4); and every outcome is counted once for its own instance, whatever became of the set meanwhile (P3, P8).
    #[test]
    fn p01_p02_p03_p04_p08_hold_whatever_happens(steps in steps(), picker in any::<prop::sample::Index>()) {
        let every = crate::picker::testing::EVERY;
        run((picker.get(&every[..]).factory)(), steps);
    }
}
