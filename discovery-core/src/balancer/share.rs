//! How much each level takes, by what is available there.
//!
//! Source: Envoy's "Priority levels", "Overprovisioning factor" and "Panic threshold" (docs, upstream load balancing). A level with a
//! part `h` of its weight available can carry `min(1, 1.4 h)`. The first takes as much as it can carry, the next of what is left as much
//! as it can, and so on. If all together carry less than everything, everybody takes in proportion to what it can carry.

/// Envoy's default `overprovisioning_factor`: a level is planned to have so much more than it needs, so that losing up to 28 % of it
/// moves no request.
const OVERPROVISIONED: f64 = 1.4;
/// Sums of shares this near to 1 are 1.
const NEAR: f64 = 1e-9;

/// Which part of all requests can be carried where so much of the known weight is available.
#[allow(clippy::cast_precision_loss, reason = "a share needs no more than 15 digits")]
pub(super) fn capacity(available: u64, known: u64) -> f64 {
    if known == 0 { 0.0 } else { (OVERPROVISIONED * available as f64 / known as f64).min(1.0) }
}

/// Whether levels with these capacities carry everything.
pub(super) fn suffices(capacities: impl IntoIterator<Item = f64>) -> bool {
    capacities.into_iter().sum::<f64>() >= 1.0 - NEAR
}

/// The share of each level, in their order. The shares sum up to 1 unless nobody can carry anything.
pub(super) fn shares(capacities: &[f64]) -> Vec<f64> {
    let total = capacities.iter().sum::<f64>().min(1.0);
    let mut left = 1.0;
    let share = |capacity: &f64| {
        let share = if total > 0.0 { (capacity / total).min(left) } else { 0.0 };
        left -= share;
        // What rounding has left over is nobody's.
        if left < NEAR {
            left = 0.0;
        }
        share
    };
    capacities.iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The table in Envoy's docs on priority levels: percentages of healthy hosts at three levels, and the traffic of each.
    #[test]
    fn p04_shares_are_those_of_envoys_table() {
        let table = [
            ([100, 100, 100], [100, 0, 0]),
            ([72, 72, 100], [100, 0, 0]),
            ([50, 60, 100], [70, 30, 0]),
            ([25, 100, 100], [35, 65, 0]),
            ([0, 0, 100], [0, 0, 100]),
            ([25, 25, 100], [35, 35, 30]),
            ([25, 25, 20], [36, 36, 28]),
        ];
        for (healthy, expected) in table {
            let capacities = healthy.map(|percent| capacity(percent, 100));
            let found: Vec<_> = shares(&capacities).iter().map(|share| share * 100.0).collect();
            for (found, expected) in found.iter().zip(expected) {
                assert!((found - f64::from(expected)).abs() < 1.0, "{healthy:?}: {found:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn p04_shares_sum_up_to_all_or_nothing(known in proptest::collection::vec((0u64..50, 0u64..50), 1..9)) {
            let capacities: Vec<_> = known.iter().map(|(a, b)| capacity(*a.min(b), *b)).collect();
            let shares = shares(&capacities);
            let sum: f64 = shares.iter().sum();
            let anybody = capacities.iter().any(|capacity| *capacity > 0.0);
            prop_assert!((sum - if anybody { 1.0 } else { 0.0 }).abs() < 1e-6, "{:?}", shares);
            for (share, capacity) in shares.iter().zip(&capacities) {
                prop_assert!(*share >= 0.0 && (*capacity > 0.0 || *share == 0.0));
                prop_assert!(!suffices(capacities.iter().copied()) || *share <= capacity + 1e-9);
            }
        }
    }
}
