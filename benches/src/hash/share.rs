//! How much more than its share the fullest instance has.

use discovery_core::picker::ConsistentHash;
use discovery_core::{Context, Member, PickerFactory};

use super::{INSTANCES, members};
use crate::Result;
use crate::measure::print;

/// The default. The smaller ones show what a table would cost that fits a smaller cache.
const SLOTS: usize = 1 << 20;
/// Each round has other ids, since the shares depend on them.
const ROUNDS: usize = 5;
/// So many keys that an instance's count is within 0.22 % of its share (one standard deviation: a thousand over the keys, square root), a
/// tenth of what the shares themselves differ by.
const KEYS: usize = 200_000_000;
pub(super) async fn run() -> Result<()> {
    let members = members(ROUNDS * INSTANCES).await?;
    let fullest = |slots: usize| {
        let rounds = members.chunks(INSTANCES).map(|round| fullest(&ConsistentHash::with_slots(slots), round));
        tokio::task::block_in_place(|| rounds.collect::<Vec<_>>())
    };
    print("hash.max_over_mean", &fullest(SLOTS), "ratio");
    print("hash.max_over_mean_half_the_slots", &fullest(SLOTS / 2), "ratio");
    print("hash.max_over_mean_quarter_of_the_slots", &fullest(SLOTS / 4), "ratio");
    Ok(())
}

/// The count of the fullest over the mean, over random keys.
fn fullest(factory: &ConsistentHash, members: &[Member]) -> f64 {
    let picker = factory.build(members);
    let mut counts = vec![0u32; members.len()];
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..KEYS {
        let key = random.u64(..).to_le_bytes();
        if let Some(count) = picker.pick(members, &Context::default().with_key(&key)).and_then(|at| counts.get_mut(at))
        {
            *count += 1;
        }
    }
    f64::from(counts.iter().copied().max().unwrap_or(0)) * members.len() as f64 / KEYS as f64
}
