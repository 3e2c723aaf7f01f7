//! How many records there were at which revision, so that a count of the store's is compared with ours at the same moment.

use std::collections::VecDeque;

/// Counts that are remembered. A store that changes more often within the time that a comparison takes is compared when it is calmer.
const REMEMBERED: usize = 256;

/// What the latest notifications led to.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// The first and the last revision of what arrived together, and the count after it.
    steps: VecDeque<(u64, u64, usize)>,
}

impl Tally {
    /// Notes a full set.
    pub(super) fn restart(&mut self, revision: u64, count: usize) {
        self.steps.clear();
        self.steps.push_back((revision, revision, count));
    }

    /// Notes changes from revision `first` to revision `last` that arrived together.
    pub(super) fn step(&mut self, first: u64, last: u64, count: usize) {
        if self.steps.len() >= REMEMBERED {
            self.steps.pop_front();
        }
        self.steps.push_back((first, last, count));
    }

    /// The count at a revision; `None` if it lies within changes that arrived together, or before everything that is remembered.
    pub(super) fn at(&self, revision: u64) -> Option<usize> {
        let (_, _, count) = self.steps.iter().rev().find(|(_, last, _)| *last <= revision)?;
        let is_between = self.steps.iter().any(|(first, last, _)| *first <= revision && *last > revision);
        (!is_between).then_some(*count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w08_a_count_belongs_to_its_revision() {
        let mut tally = Tally::default();
        assert_eq!(tally.at(1), None);
        tally.restart(10, 3);
        tally.step(11, 11, 4);
        tally.step(15, 18, 2);
        assert_eq!(
            [9, 10, 11, 14, 16, 18, 99].map(|at| tally.at(at)),
            [None, Some(3), Some(4), Some(4), None, Some(2), Some(2)]
        );
    }

    #[test]
    fn memory_is_bounded() {
        let mut tally = Tally::default();
        (0..10_000).for_each(|n| tally.step(n, n, 1));
        assert_eq!((tally.steps.len(), tally.at(5)), (REMEMBERED, None));
    }
}
