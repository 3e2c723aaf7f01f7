//! Drawing members in proportion to their weights.
//!
//! Source: A. J. Walker's alias method with M. D. Vose's way to build the table ("A Linear Algorithm for Generating Random Numbers with a
//! Given Distribution", IEEE TSE 1991): each member has a column, in which another fills what its weight leaves free.

use super::Member;

/// A column: below the threshold of 2^32 parts it is the member's own, above it the other's.
#[derive(Debug, Clone, Copy)]
struct Column {
    threshold: u32,
    other: u32,
}

/// One column for each member; none if nobody has weight.
#[derive(Debug)]
pub(super) struct Columns(Box<[Column]>);

impl Columns {
    pub(super) fn of(members: &[Member]) -> Self {
        Self::new(&members.iter().map(Member::weight).collect::<Vec<_>>())
    }

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

    /// The index of a member, each with a probability in proportion to its weight; `None` if nobody has weight.
    #[inline]
    pub(super) fn draw(&self) -> Option<usize> {
        let random = fastrand::u64(..);
        // The upper half times the number of columns: see `pair` for the source and the error.
        let column = usize::try_from(((random >> 32) * self.0.len() as u64) >> 32).ok()?;
        let Column { threshold, other } = *self.0.get(column)?;
        let is_own = random & u64::from(u32::MAX) < u64::from(threshold);
        Some(if is_own { column } else { other as usize })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
