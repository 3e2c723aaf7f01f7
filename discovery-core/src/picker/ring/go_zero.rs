//! The ring of go-zero's `core/hash`.
//!
//! Source: `ConsistentHash.AddWithWeight` there: the first 64 bits of MurmurHash3 of address and number, for `weight` numbers from 0 on but
//! at most a hundred.

use super::digest::murmur3;
use super::{Ring, address, weighty};
use crate::picker::{Member, Picker, PickerFactory};

/// go-zero's `TopWeight`, and its replicas for that.
const REPLICAS: u32 = 100;

/// Sends a key ([`Context::with_key`](crate::Context::with_key)) where go-zero's consistent hash sends it: its weights are percents, so the default
/// weight here, 100, is what it has without one, and more counts as 100.
///
/// Where two of the 64-bit hashes were the same, go-zero would hash once more; here the first member takes the key.
#[derive(Debug, Clone, Copy, Default)]
pub struct GoZeroRing;

impl PickerFactory for GoZeroRing {
    fn build(&self, members: &[Member]) -> Box<dyn Picker> {
        let mut points = Vec::new();
        for (member, index) in weighty(members) {
            let address = address(member);
            let numbers = 0..member.weight().min(REPLICAS);
            points.extend(numbers.map(|number| (murmur3(format!("{address}{number}").as_bytes()), index)));
        }
        Box::new(Ring::new(points, murmur3))
    }
}
