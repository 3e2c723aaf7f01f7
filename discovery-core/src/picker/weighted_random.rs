//! Random, in proportion to the weights.

use super::columns::Columns;
use super::{Context, Member, Picker, PickerFactory};

/// Picks each member with a probability in proportion to its weight, whatever was picked before. A pick costs the same for any number.
#[derive(Debug, Clone, Copy, Default)]
pub struct WeightedRandom;

impl Picker for Columns {
    #[inline]
    fn pick(&self, _members: &[Member], _context: &Context<'_>) -> Option<usize> {
        self.draw()
    }
}

impl PickerFactory for WeightedRandom {
    fn build(&self, members: &[Member]) -> Box<dyn Picker> {
        Box::new(Columns::of(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balancer::testing::members;

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
}
