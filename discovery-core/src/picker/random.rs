//! Uniform random.

use super::{Context, Member, Picker, PickerFactory, TRIES};

/// Picks each member with the same probability, whatever its weight.
#[derive(Debug, Clone, Copy, Default)]
pub struct Random;

impl Picker for Random {
    fn pick(&self, members: &[Member], _context: &Context<'_>) -> Option<usize> {
        (!members.is_empty()).then(|| fastrand::usize(..members.len()))
    }

    fn starts_by_weight(&self) -> bool {
        false
    }

    /// Each draw is a new one, so whoever was not accepted may be drawn again: shares stand as the chances to be accepted do.
    fn pick_where(&self, members: &[Member], context: &Context<'_>, accepts: &dyn Fn(usize) -> bool) -> Option<usize> {
        let mut last = self.pick(members, context)?;
        for _ in 0..TRIES {
            if accepts(last) {
                return Some(last);
            }
            last = self.pick(members, context)?;
        }
        (last..members.len()).chain(0..last).find(|at| accepts(*at)).or(Some(last))
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
