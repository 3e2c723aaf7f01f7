//! The caller's own zone first, and what it cannot carry elsewhere.
//!
//! Source of the share by capacity: Envoy's locality weights, see [`share`](super::share). The share by load is our own: of two
//! candidates, one local and one from elsewhere, the local one is taken until it is so much busier, as power of two choices
//! (M. Mitzenmacher, IEEE TPDS 2001) would take the less busy at a factor of 1.

use std::sync::Arc;

use super::Member;

/// How much busier a local instance may be than one elsewhere: so many times the requests in flight for the same weight.
///
/// Less sends requests across zones that nobody needed to send; with more, a small zone is overrun while others idle.
pub const SPILL_FACTOR: f64 = 4.0;

/// The caller's zone, whose instances are taken first.
///
/// - As long as `1 / 1.4` (71 %) of the weight of the zone's instances is available, all requests stay there; with less, the share of
///   what is available times 1.4 stays.
/// - A request goes elsewhere if the local instance that would take it is more than `spill_factor` times busier than one elsewhere that
///   was drawn at random: `(pending + 1) / weight` of this process is compared.
///
/// A zone that shrinks loses its share little by little, and one that is gone is not missed.
#[derive(Debug, Clone)]
pub struct Zone {
    name: Arc<str>,
    spill_factor: Option<f64>,
}

impl Zone {
    /// Takes the instances of this zone first.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), spill_factor: Some(SPILL_FACTOR) }
    }

    /// Sets how much busier a local instance may be; `None` for any, so that only what is available decides. A factor below 1,
    /// or one that is no number, counts as 1. The default is [`SPILL_FACTOR`].
    #[must_use]
    pub fn with_spill_factor(mut self, factor: impl Into<Option<f64>>) -> Self {
        self.spill_factor = factor.into().map(|factor| factor.max(1.0));
        self
    }

    /// The zone's name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// How much busier a local instance may be.
    pub fn spill_factor(&self) -> Option<f64> {
        self.spill_factor
    }
}

/// Whether the local member is more than so much busier than the other.
#[inline]
pub(super) fn is_busier(local: &Member, other: &Member, factor: f64) -> bool {
    let load = |member: &Member, weight: u32| (f64::from(member.pending()) + 1.0) * f64::from(weight);
    load(local, other.weight()) > factor * load(other, local.weight())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balancer::testing::member;

    #[test]
    fn busier_for_its_weight() {
        let (a, b) = (member("a", 100), member("b", 200));
        assert!(!is_busier(&a, &b, 4.0));
        let held: Vec<_> = (0..3).map(|_| a.begin_at(None)).collect();
        // Four for a weight of 100 against one for 200.
        assert!(is_busier(&a, &b, 4.0) && !is_busier(&a, &b, 8.0) && !is_busier(&b, &a, 1.0));
        drop(held);
        let heavy = member("c", u32::MAX);
        assert!(!is_busier(&heavy, &heavy, 1.0));
    }

    #[test]
    fn a_factor_is_never_below_one() {
        let factor = |factor: f64| Zone::new("z").with_spill_factor(factor).spill_factor();
        assert_eq!([0.0, -3.0, f64::NAN, 2.5].map(factor), [Some(1.0), Some(1.0), Some(1.0), Some(2.5)]);
        assert_eq!(Zone::new("z").with_spill_factor(None).spill_factor(), None);
    }
}
