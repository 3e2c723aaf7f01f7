//! What finding the instance of a key costs.
//!
//! Which keys are asked for decides what is measured, since a table that is not in the cache takes longer to read than to compute with.
//! Nobody's keys are fetched from memory here, as a request has just been read when its key is looked up: keys in a list of 200,000 cost
//! more than the lookup, on both sides alike. So there are two sets. Few keys, some thousand sessions that are at work, touch that many
//! lines of each table, which stay in the cache. New keys, each drawn at random, touch all lines: 2 MiB of ours, 1.25 MiB of pingora's.
//!
//! And there are two ways to ask: one lookup may begin before the last is done, so that the processor waits for several lines at once,
//! which is how lookups are usually compared; or each waits for the last, its key depending on that, as a request's lookup stands alone.
//! Then one line that is not in the cache is most of what ours takes.

use std::hint::black_box;
use std::sync::Arc;

use discovery_core::picker::ConsistentHash;
use discovery_core::{BalancerOptions, Context, Member, Outcome, Picker, PickerFactory};

use super::{INSTANCES, members};
use crate::Result;
use crate::fleet::Fleet;
use crate::measure::{Contest, timed};

/// As long as a UUID.
pub(super) type Key = [u8; 16];

const FEW: usize = 4_096;
/// Lookups before each slice that are not timed: each contestant meets the caches as it would leave them if it were alone. Otherwise the
/// first one of a table would fetch it for the next.
const WARM_UP: usize = 4 * FEW;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keys {
    Few,
    New,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Overlapping,
    Alone,
}

/// The sets of keys with the ways to ask; what overlaps first.
const ALL: [(Keys, Way); 4] =
    [(Keys::Few, Way::Overlapping), (Keys::New, Way::Overlapping), (Keys::Few, Way::Alone), (Keys::New, Way::Alone)];

pub(super) async fn enter(contest: &mut Contest<'_>) -> Result<()> {
    let members: Arc<[Member]> = members(INSTANCES).await?.into();
    let picker: Arc<dyn Picker> = ConsistentHash::new().build(&members).into();
    let names = ["lookup_few", "lookup_new", "lookup_few_alone", "lookup_new_alone"];
    enter_all(contest, names, move |key| picker.pick(&members, &Context::default().with_key(key)));
    let fleet = Fleet::new(vec![1; INSTANCES])?;
    let mut reader = fleet.balancer(ConsistentHash::new(), BalancerOptions::default()).await?.reader();
    enter_all(contest, ["pick_few", "pick_new"], move |key| {
        let pick = reader.pick(&Context::default().with_key(key)).ok()?;
        pick.finish(Outcome::Success);
        None
    });
    Ok(())
}

/// Enters one under each of these names, in the order of [`ALL`].
pub(super) fn enter_all<'a, const N: usize>(
    contest: &mut Contest<'a>,
    names: [&'static str; N],
    find: impl FnMut(&Key) -> Option<usize> + Clone + 'a,
) {
    for (name, kind) in names.into_iter().zip(ALL) {
        enter_one(contest, name, kind, find.clone());
    }
}

fn enter_one<'a>(
    contest: &mut Contest<'a>,
    name: &'static str,
    (keys, way): (Keys, Way),
    mut find: impl FnMut(&Key) -> Option<usize> + 'a,
) {
    let mut random = fastrand::Rng::with_seed(1);
    let few: Vec<Key> = (0..FEW).map(|_| random.u128(..).to_le_bytes()).collect();
    let mut number = 0usize;
    let mut ask = move |times| {
        let mut last = 0;
        for _ in 0..times {
            number = number.wrapping_add(1);
            let key = match keys {
                Keys::Few => few[number.wrapping_add(last) % FEW],
                Keys::New => (random.u128(..) ^ last as u128).to_le_bytes(),
            };
            let found = black_box(find(&key)).unwrap_or(0);
            last = if way == Way::Alone { found } else { 0 };
        }
    };
    contest.add_timed(name, move |times| {
        ask(WARM_UP);
        timed(|| ask(times))
    });
}
