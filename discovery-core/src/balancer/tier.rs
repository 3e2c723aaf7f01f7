//! One tier of a selection: its members, their picker, and its share of all requests.
//!
//! Passing over newcomers is for pickers that do not go by weights: with the probability that a newcomer lacks of a full share the picker
//! is asked again, so round robin goes on to the next member in turn and stays exact for everybody else.

use std::sync::Arc;

use super::Member;
use super::health::Heed;
use super::plan::Level;
use crate::picker::{Context, Picker};

/// How often a picker is asked again. All of these picks met newcomers, so there are many and any of them will do.
const TRIES: u32 = 16;

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
    /// While somebody starts slowly that the picker does not pass over by itself: how often, of 2^32, each member keeps a pick.
    pub(super) keeps: Option<Box<[u32]>>,
}

impl Tier {
    /// The member that takes the request, available or not.
    pub(super) fn choose(&self, context: &Context<'_>) -> Option<usize> {
        let index = self.picker.pick(&self.members, context)?;
        match &self.keeps {
            None => Some(index),
            Some(keeps) => self.pass_over(index, keeps, context),
        }
    }

    #[inline(never)]
    fn pass_over(&self, mut index: usize, keeps: &[u32], context: &Context<'_>) -> Option<usize> {
        for _ in 0..TRIES {
            match keeps.get(index) {
                Some(keep) if *keep != u32::MAX && fastrand::u32(..) > *keep => {}
                _ => break,
            }
            index = self.picker.pick(&self.members, context)?;
        }
        Some(index)
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
    let fullest = shares.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    shares.iter().map(|share| (share / fullest * f64::from(u32::MAX)) as u32).collect()
}
