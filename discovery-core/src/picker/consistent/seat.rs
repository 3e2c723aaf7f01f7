//! When a member claims a slot: weighted rendezvous hashing over a fixed number of slots.
//!
//! Source: C. Schindelhauer and G. Schomaker, "Weighted Distributed Hash Tables" (SPAA 2005), the logarithmic method: a member of weight w
//! claims a slot at the time `-log(1 - u) / w` for a hash `u` of both, and the slot belongs to whoever claims it first. Here `u` is not
//! drawn anew for each slot: each member goes through all slots in an order of its own with a step and an offset, as in Maglev (D. Eisenbud
//! et al., NSDI 2016), and `u` is the slot's rank in it. So every member has every rank once, which halves the variance of the shares, and
//! its claims can be listed from the first on without looking at the others.
//!
//! Everything is computed in whole numbers, so that no platform rounds otherwise.

/// One member's order of the slots, and its weight.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seat {
    /// The hash of the member's id.
    pub(super) key: u64,
    pub(super) weight: u32,
    /// Claims of a lower rank fall before the horizon.
    pub(super) limit: u32,
    pub(super) order: Order,
    /// The inverse of the step modulo the number of slots, and what is below a rank in a position.
    inverse: u32,
    below: u32,
}

/// Where a member has its slots: the position is the rank as a fraction of 2^32. Ranks of two members are often the same, so the lower bits,
/// which the step leaves alone, are the member's own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order {
    pub(super) step: u32,
    pub(super) offset: u32,
}

impl Order {
    /// No order, whose positions are all the last.
    pub(super) const NONE: Self = Self { step: 0, offset: u32::MAX };

    #[inline]
    pub(super) fn position(self, slot: usize) -> u32 {
        (slot as u32).wrapping_mul(self.step).wrapping_add(self.offset)
    }
}

impl Seat {
    /// A member of this key and weight among `2^bits` slots.
    pub(super) fn new(key: u64, weight: u32, bits: u32) -> Self {
        let below = 32 - bits;
        let drawn = mix(key ^ INCREMENT);
        let (step, offset) = (drawn as u32 | 1, (drawn >> 32) as u32);
        Self { key, weight, limit: 0, order: Order { step: step << below, offset }, inverse: inverse(step), below }
    }

    /// The slot of this rank in its order.
    #[inline]
    pub(super) fn slot(&self, rank: u32) -> usize {
        let slot = rank.wrapping_sub(self.order.offset >> self.below).wrapping_mul(self.inverse);
        ((slot << self.below) >> self.below) as usize
    }

    /// Whether its claim on the slot falls before the horizon.
    #[inline]
    pub(super) fn is_early(&self, slot: usize) -> bool {
        self.order.position(slot) >> self.below < self.limit
    }

    /// Whether it claims the slot before the other, who is not itself.
    #[inline]
    pub(super) fn beats(&self, other: &Self, slot: usize) -> bool {
        let (mine, theirs) = (self.order.position(slot), other.order.position(slot));
        if self.weight == other.weight {
            return (mine, self.key) < (theirs, other.key);
        }
        let theirs = u128::from(age(theirs)) * u128::from(self.weight);
        // An age is more than the position, which decides most cases without the logarithm.
        if (u128::from(mine) << (AGE_BITS - 32)) * u128::from(other.weight) > theirs {
            return false;
        }
        let mine = u128::from(age(mine)) * u128::from(other.weight);
        (mine, self.key) < (theirs, other.key)
    }

    /// Sets the horizon, where members of the total weight have claimed all but `2^-octaves` of the slots.
    pub(super) fn set_horizon(&mut self, octaves: u32, total: u64) {
        // P(age > a) = 2^-a, and the first of all claims falls as that of one member with the weight of all.
        let end = (u128::from(octaves) << AGE_BITS) * u128::from(self.weight) / u128::from(total.max(1));
        let own = self.order.offset << (32 - self.below) >> (32 - self.below);
        let (mut low, mut high) = (0, 1u64 << (32 - self.below));
        while low < high {
            let middle = (low + high) / 2;
            let position = (middle as u32) << self.below | own;
            if u128::from(age(position)) <= end { low = middle + 1 } else { high = middle }
        }
        self.limit = low as u32;
    }
}

/// The inverse of an odd number modulo 2^32, by Newton's iteration: each step doubles the number of right bits, from three on.
fn inverse(odd: u32) -> u32 {
    (0..4).fold(odd, |x, _| x.wrapping_mul(2u32.wrapping_sub(odd.wrapping_mul(x))))
}

/// The increment of SplitMix64, so that an id's hash and what is drawn from it are not the same.
const INCREMENT: u64 = 0x9E37_79B9_7F4A_7C15;

/// Spreads a change of one bit over all; the finalizer of SplitMix64 (G. Steele, D. Lea and C. Flood, OOPSLA 2014). Another one would move
/// keys between releases.
#[inline]
pub(super) fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

/// Fractional bits of an age: so many that the age of the first position, about 2^-32, still has ten.
const AGE_BITS: u32 = 42;
/// The logarithm is a chord between so many points, which is within one in 500 of it.
const CHORD_BITS: u32 = 8;

/// `-log2(1 - position / 2^32)`.
#[inline]
fn age(position: u32) -> u64 {
    let rest = (1u64 << 32) - u64::from(position);
    let whole = rest.ilog2();
    if whole == 32 {
        return 0;
    }
    // The binary digits after the leading one, 32 of them.
    let digits = (rest << (32 - whole)) & u64::from(u32::MAX);
    let below = 32 - CHORD_BITS;
    let chord = (digits >> below) as usize;
    let (from, to) = (LOGARITHMS[chord], LOGARITHMS[chord + 1]);
    // Counted from the chord's upper end, since the last one ends in a power of two: so the least ages stay precise.
    let missing = (1 << below) - (digits & ((1 << below) - 1));
    (u64::from(32 - whole) << AGE_BITS) - to + (((to - from) * missing) >> below)
}

const LOGARITHMS: [u64; (1 << CHORD_BITS) + 1] = {
    let mut table = [0; (1 << CHORD_BITS) + 1];
    let mut at = 0;
    while at <= 1 << CHORD_BITS {
        table[at] = logarithm(at as u128);
        at += 1;
    }
    table
};

/// `log2(1 + step / 2^CHORD_BITS)`, one binary digit for each squaring.
const fn logarithm(step: u128) -> u64 {
    if step == 1 << CHORD_BITS {
        return 1 << AGE_BITS;
    }
    let mut x = (1 << 62) + (step << (62 - CHORD_BITS));
    let mut digits = 0;
    let mut digit = 0;
    while digit < AGE_BITS {
        x = (x * x) >> 62;
        digits <<= 1;
        if x >= 1 << 63 {
            x >>= 1;
            digits |= 1;
        }
        digit += 1;
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_order_is_a_permutation_and_its_inverse_inverts() {
        for bits in [6, 7, 12, 13] {
            for key in 0..20u64 {
                let seat = Seat::new(mix(key), 1, bits);
                let mut seen = vec![false; 1 << bits];
                for rank in 0..1 << bits {
                    let slot = seat.slot(rank);
                    assert_eq!(seat.order.position(slot) >> seat.below, rank);
                    assert!(!std::mem::replace(&mut seen[slot], true));
                }
            }
        }
    }

    #[test]
    fn ages_are_logarithms() {
        let mut before = 0;
        assert_eq!(age(0), 0);
        for position in (1..200).chain((200..u32::MAX).step_by(65_521)).chain([u32::MAX - 1, u32::MAX]) {
            let exact = -(-f64::from(position) / 4_294_967_296.0).ln_1p() / std::f64::consts::LN_2;
            let got = age(position) as f64 / (1u64 << AGE_BITS) as f64;
            assert!((got - exact).abs() <= exact * 0.004, "{position}: {got} for {exact}");
            assert!(age(position) > before);
            before = age(position);
        }
    }

    proptest! {
        #[test]
        fn who_is_first_does_not_depend_on_who_asks(a in any::<u64>(), b in any::<u64>(), w in 1u32.., v in 1u32.., slot in 0usize..4096) {
            prop_assume!(a != b);
            let (a, b) = (Seat::new(a, w, 12), Seat::new(b, v, 12));
            prop_assert_ne!(a.beats(&b, slot), b.beats(&a, slot));
        }
    }
}
