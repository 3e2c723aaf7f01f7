//! The ring of Apache Dubbo's `consistenthash`.
//!
//! Source: `ConsistentHashLoadBalance` of Dubbo 2.7 and 3: the four little-endian words of the MD5 of address and number, for forty numbers,
//! are points; a key is the first word of its own MD5.

use super::digest::md5;
use super::{Ring, address, weighty};
use crate::picker::{Member, Picker, PickerFactory};

/// Dubbo's `hash.nodes` is 160, four of each digest.
const DIGESTS: u32 = 160 / 4;

/// Sends a key ([`Context::with_key`](crate::Context::with_key)) where Dubbo sends a call whose arguments, as text one after the other, are that
/// key. By its defaults that is the first argument, under `hash.nodes` of 160. Weights do not matter there.
#[derive(Debug, Clone, Copy, Default)]
pub struct DubboRing;

impl DubboRing {
    pub(super) fn ring(members: &[Member]) -> Ring {
        let mut points = Vec::with_capacity(members.len() * 160);
        // Of several with one hash Dubbo keeps the last.
        for (member, index) in weighty(members).collect::<Vec<_>>().into_iter().rev() {
            let address = address(member);
            for number in 0..DIGESTS {
                let words = md5(format!("{address}{number}").as_bytes());
                points.extend(words.map(|word| (u64::from(word), index)));
            }
        }
        Ring::new(points, |key| u64::from(md5(key)[0]))
    }
}

impl PickerFactory for DubboRing {
    fn build(&self, members: &[Member]) -> Box<dyn Picker> {
        Box::new(Self::ring(members))
    }
}
