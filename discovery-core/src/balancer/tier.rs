//! One tier of a selection: its members, their picker, and its share of all requests.
//!
//! Passing over newcomers is for pickers that do not start them by weight: with the probability that a newcomer lacks of a full share somebody
//! else is picked, so round robin goes on to the next member in turn and stays exact for everybody else. For a request with a key it is no
//! chance but a hash of the key, so that it goes the same way whenever and from wherever it is sent (P6), and as the newcomer's share grows keys
//! move to it and none away from it.

use std::sync::Arc;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::Member;
use super::health::Heed;
use super::plan::Level;
use crate::picker::{Context, Picker};

pub(super) struct Tier {
    pub(super) level: Level,
    /// The share of all requests.
    pub(super) share: f64,
    pub(super) panics: bool,
    /// Which objections its members may not have.
    pub(super) heed: Heed,
    /// Sorted by id.
    pub(super) members: Box<[Member]>,
    pub(super) picker: Arc<dyn Picker>,
    /// While somebody starts slowly whom the picker does not start by weight: how often, of 2^32, each member keeps a pick.
    pub(super) keeps: Option<Box<[u32]>>,
}

impl Tier {
    /// The member that takes the request, available or not.
    pub(super) fn choose(&self, context: &Context<'_>) -> Option<usize> {
        match &self.keeps {
            None => self.picker.pick(&self.members, context),
            Some(keeps) => {
                self.picker.pick_where(&self.members, context, &|index| self.is_kept(index, keeps, context.key))
            }
        }
    }

    /// Whether a member keeps a pick.
    fn is_kept(&self, index: usize, keeps: &[u32], key: Option<&[u8]>) -> bool {
        let (Some(member), Some(keep)) = (self.members.get(index), keeps.get(index)) else {
            return true;
        };
        *keep == u32::MAX
            || match key {
                // By the id as well, so that several newcomers do not all wait for the same keys.
                Some(key) => xxh3_64_with_seed(key, xxh3_64(member.instance().id().as_bytes())) >> 32,
                None => u64::from(fastrand::u32(..)),
            } < u64::from(*keep)
    }

    /// Whether a member may be picked at this moment.
    #[inline]
    pub(super) fn admits(&self, member: &Member) -> bool {
        self.heed.admits(member.objections())
    }

    /// Somebody who may be picked, looked for from `index` on.
    pub(super) fn stand_in(&self, index: usize) -> Option<&Member> {
        let (before, from) = self.members.split_at_checked(index)?;
        from.iter().chain(before).find(|member| self.admits(member))
    }
}

/// How often each keeps a pick, given its share of its weight: the fullest always does.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 0 and 2^32, and saturates")]
pub(super) fn keeps(shares: &[f64]) -> Box<[u32]> {
    let fullest = shares.iter().copied().fold(0.0, f64::max);
    if fullest <= 0.0 {
        // Somebody has to take the requests.
        return vec![u32::MAX; shares.len()].into();
    }
    shares.iter().map(|share| (share / fullest * f64::from(u32::MAX)) as u32).collect()
}
