//! Random, in proportion to the weights.
//!
//! Source: A. J. Walker's alias method with M. D. Vose's way to build the table ("A Linear Algorithm for Generating Random Numbers with a
//! Given Distribution", IEEE TSE 1991): each member has a column, in which another fills what its weight leaves free.

use super::{Context, Member, Picker, PickerFactory};

/// Picks each member with a probability in proportion to its weight, whatever was picked before. A pick costs the same for any number.
#[derive(Debug, Clone, Copy, Default)]
pub struct WeightedRandom;

/// A column: below the threshold of 2^32 parts it is the member's own, above it the other's.
#[derive(Debug, Clone, Copy)]
struct Column {
    threshold: u32,
    other: u32,
}

#[derive(Debug)]
struct Columns(Box<[Column]>);

impl Picker for Columns {
    #[inline]
    fn pick(&self, _members: &[Member], _context: &Context<'_>) -> Option<usize> {
        let random = fastrand::u64(..);
        // The upper half times the number of columns: see `PowerOfTwo` for the source and the error.
        let column = usize::try_from(((random >> 32) * self.0.len() as u64) >> 32).ok()?;
        let Column { threshold, other } = *self.0.get(column)?;
        let is_own = random & u64::from(u32::MAX) < u64::from(threshold);
        Some(if is_own { column } else { other as usize })
    }
}

impl Columns {
    fn new(weights: &[u32]) -> Self {
        let (n, sum) = (weights.len() as u128, weights.iter().map(|weight| u128::from(*weight)).sum::<u128>());
        if sum == 0 {
            return Self(Box::default());
        }
        // What everybody has, in parts of which a full column has `sum`.
        let mut parts: Vec<_> = weights.iter().map(|weight| u128::from(*weight) * n).collect();
        let mut columns: Box<[_]> =
            (0..).map(|at| Column { threshold: u32::MAX, other: at }).take(weights.len()).collect();
        let (mut poor, mut rich): (Vec<_>, Vec<_>) = (0..weights.len()).partition(|at| parts[*at] < sum);
        while let (Some(low), Some(high)) = (poor.pop(), rich.pop()) {
            let threshold = (parts[low] << 32) / sum;
            let other = u32::try_from(high).unwrap_or(u32::MAX);
            columns[low] = Column { threshold: u32::try_from(threshold).unwrap_or(u32::MAX), other };
            parts[high] -= sum - parts[low];
            if parts[high] < sum { poor.push(high) } else { rich.push(high) }
        }
        Self(columns)
    }
}

impl PickerFactory for WeightedRandom {
    fn build(&self, members: &[Member]) -> Box<dyn Picker> {
        let weights: Vec<_> = members.iter().map(Member::weight).collect();
        Box::new(Columns::new(&weights))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balancer::testing::members;
    use proptest::prelude::*;

    /// The share of each member by the table itself.
    fn shares(weights: &[u32]) -> Vec<f64> {
        let columns = Columns::new(weights);
        let mut shares = vec![0.0; weights.len()];
        for (at, column) in columns.0.iter().enumerate() {
            let own = f64::from(column.threshold) / 2f64.powi(32);
            shares[at] += own;
            shares[column.other as usize] += 1.0 - own;
        }
        shares.iter().map(|share| share / weights.len() as f64).collect()
    }

    #[test]
    fn f12_f13_nobody_where_nobody_has_weight() {
        for weights in [vec![], vec![0, 0]] {
            let members = members(&weights);
            assert_eq!(WeightedRandom.build(&members).pick(&members, &Context::default()), None);
        }
        let members = members(&[0, 5, 0]);
        let picker = WeightedRandom.build(&members);
        assert!((0..10_000).all(|_| picker.pick(&members, &Context::default()) == Some(1)));
    }

    #[test]
    fn counts_follow_the_weights() {
        let weights = [1u32, 2, 3, 4, 90];
        let members = members(&weights);
        let picker = WeightedRandom.build(&members);
        let mut counts = [0f64; 5];
        (0..100_000).for_each(|_| counts[picker.pick(&members, &Context::default()).unwrap()] += 1.0);
        let chi: f64 =
            counts.iter().zip(weights).map(|(c, w)| (c - 1e3 * f64::from(w)).powi(2) / (1e3 * f64::from(w))).sum();
        // Four degrees of freedom: above 33 once in a million runs.
        assert!(chi < 33.0, "{chi} {counts:?}");
    }

    proptest! {
        #[test]
        fn f13_every_share_is_its_weights(weights in proptest::collection::vec(any::<u32>(), 1..60)) {
            let sum: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
            prop_assume!(sum > 0.0);
            for (share, weight) in shares(&weights).iter().zip(&weights) {
                prop_assert!((share - f64::from(*weight) / sum).abs() < 1e-8, "{share} of {weight}");
                prop_assert!(*weight > 0 || *share < 1e-9);
            }
        }
    }
}
