//! Uniform random.

use super::{Context, Member, Picker, PickerFactory};

/// Picks each member with the same probability, whatever its weight.
#[derive(Debug, Clone, Copy, Default)]
pub struct Random;

impl Picker for Random {
    fn pick(&self, members: &[Member], _context: &Context<'_>) -> Option<usize> {
        (!members.is_empty()).then(|| fastrand::usize(..members.len()))
    }

    fn shares_by_weight(&self) -> bool {
        false
    }
}

impl PickerFactory for Random {
    fn build(&self, _members: &[Member]) -> Box<dyn Picker> {
        Box::new(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balancer::testing::members;

    #[test]
    fn f12_nobody_where_there_is_nobody_and_everybody_otherwise() {
        assert_eq!(Random.pick(&[], &Context::default()), None);
        let members = members(&[1, 1, 1]);
        let mut counts = [0u32; 3];
        for _ in 0..30_000 {
            counts[Random.pick(&members, &Context::default()).unwrap()] += 1;
        }
        // Chi-square with two degrees of freedom: 27.6 is exceeded once in a million runs.
        let chi: f64 = counts.iter().map(|c| (f64::from(*c) - 10_000.0).powi(2) / 10_000.0).sum();
        assert!(chi < 27.6, "{counts:?}");
    }
}
