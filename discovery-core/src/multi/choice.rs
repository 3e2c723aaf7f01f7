//! Which sides count for a watch right now, and how far each is trusted: a decision from what is known of them, without any I/O.

use std::time::Duration;

use tokio::time::Instant;

use super::{Mode, MultiOptions};
use crate::ErrorKind;
use crate::snapshot::Freshness;

/// How far what a side shows can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Live, and for so long that whatever has to be written again after an outage is.
    Steady,
    /// Live since a moment ago: what it says may be from before its outage.
    Back,
    /// It has a set from earlier.
    Stale,
    /// It has no set yet.
    Unread,
    /// Its backend was closed: it takes no part any more.
    Closed,
}

impl Standing {
    pub(super) fn is_live(self) -> bool {
        matches!(self, Self::Steady | Self::Back)
    }

    pub(super) fn has_set(self) -> bool {
        self.is_live() || self == Self::Stale
    }
}

/// What a side shows; `None` once its backend is closed.
#[derive(Debug, Clone)]
pub(super) struct Shown {
    pub(super) freshness: Freshness,
    pub(super) is_empty: bool,
    pub(super) from_disk: bool,
}

/// Whose sets count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counted {
    /// Nobody's yet: there is no first set.
    Nobody,
    /// Everybody's.
    All,
    /// One side's.
    One(usize),
    /// Nobody's any more: what was shown stays.
    Kept,
}

impl Counted {
    /// Whether what a side shows is part of what is shown.
    pub(super) fn includes(self, side: usize) -> bool {
        match self {
            Self::All => true,
            Self::One(one) => side == one,
            Self::Nobody | Self::Kept => false,
        }
    }

    /// Whether the freshness of what is shown depends on a side: on each that would count if it had more to say.
    pub(super) fn depends_on(self, side: usize) -> bool {
        match self {
            Self::One(one) => side <= one,
            Self::Nobody | Self::All | Self::Kept => true,
        }
    }
}

#[derive(Debug, Default)]
struct Side {
    /// Since when its registry answers without a break, or does not.
    answers: Option<Instant>,
    away: Option<Instant>,
    live: Option<Instant>,
    /// Whether it was live from the first set on, so that it has no outage to recover from.
    untroubled: bool,
    /// When it was steady last. While nobody is, whoever was last knows the newest records: another one that comes back may be behind it.
    steady: Option<Instant>,
}

/// Decides for one watch.
#[derive(Debug)]
pub(super) struct Choice {
    options: MultiOptions,
    sides: Vec<Side>,
    /// When a side had a set for the first time.
    first: Option<Instant>,
    /// Whether there was a first set.
    begun: bool,
    /// The side in use, where only one is.
    current: Option<usize>,
}

/// A decision, and when another one is due if nothing happens.
#[derive(Debug)]
pub(super) struct Decision {
    pub(super) counted: Counted,
    pub(super) standings: Vec<Standing>,
    /// The sides in the order in which their records count, should they differ in one.
    pub(super) order: Vec<usize>,
    pub(super) again: Option<Instant>,
}

impl Choice {
    pub(super) fn new(sides: usize, options: MultiOptions) -> Self {
        let sides = (0..sides).map(|_| Side::default()).collect();
        Self { options, sides, first: None, begun: false, current: None }
    }

    pub(super) fn decide(&mut self, shown: &[Option<Shown>], now: Instant) -> Decision {
        let mut again = Again { now, at: None };
        let standings: Vec<_> = shown.iter().enumerate().map(|(at, side)| self.stand(at, side, &mut again)).collect();
        let counted = self.count(shown, &standings, &mut again);
        let mut order: Vec<_> = (0..standings.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(self.sides[*at].steady));
        Decision { counted, standings, order, again: again.at }
    }

    /// Notes what a side shows.
    fn stand(&mut self, at: usize, shown: &Option<Shown>, again: &mut Again) -> Standing {
        let (now, begun, side) = (again.now, self.begun, &mut self.sides[at]);
        let Some(Shown { freshness, .. }) = shown else {
            *side = Side { away: side.away.or(Some(now)), ..Side::default() };
            return Standing::Closed;
        };
        // A set that the brake holds, or that is read anew after a gap, is stale while its registry answers.
        let answers = match freshness {
            Freshness::Live => true,
            Freshness::Stale(_, cause) => cause.kind() == ErrorKind::Gap,
            Freshness::Loading(..) => false,
        };
        side.answers = answers.then(|| side.answers.unwrap_or(now));
        side.away = (!answers).then(|| side.away.unwrap_or(now));
        if !freshness.is_live() {
            (side.live, side.untroubled) = (None, false);
            return if freshness.is_stale() { Standing::Stale } else { Standing::Unread };
        }
        side.untroubled |= !begun;
        let live = *side.live.get_or_insert(now);
        if side.untroubled || again.is_past(live + self.options.away) {
            side.steady = Some(now);
            Standing::Steady
        } else {
            Standing::Back
        }
    }

    fn count(&mut self, shown: &[Option<Shown>], standings: &[Standing], again: &mut Again) -> Counted {
        let empty = |at: usize| shown[at].as_ref().is_none_or(|side| side.is_empty);
        let read: Vec<_> = (0..standings.len()).filter(|at| standings[*at].has_set()).collect();
        let filled = read.iter().copied().find(|at| !empty(*at));
        let Some(first) = read.first().copied() else {
            return if self.begun { Counted::Kept } else { Counted::Nobody };
        };
        if !self.begun {
            let waited = *self.first.get_or_insert(again.now) + self.options.patience;
            // That there is nobody is only known once every side has said so.
            let whole = !standings.contains(&Standing::Unread);
            if !whole && (filled.is_none() || !again.is_past(waited)) {
                return Counted::Nobody;
            }
            self.begun = true;
        }
        match self.options.mode {
            Mode::Union => Counted::All,
            Mode::Prefer => {
                // What an earlier process left may be long gone; a registry that answers and has the service knows better.
                let known = |at: &usize| !empty(*at) && shown[*at].as_ref().is_some_and(|side| !side.from_disk);
                Counted::One(read.iter().copied().find(known).or(filled).unwrap_or(first))
            }
            Mode::Failover => Counted::One(self.fail_over(&read, &empty, again)),
        }
    }

    /// The side in use stays until it was away for longer than the bound, and an earlier one is returned to once it has answered for as
    /// long; so a side that comes and goes is neither left nor returned to. Nobody leaves a side that has instances for one that has none.
    fn fail_over(&mut self, read: &[usize], empty: &dyn Fn(usize) -> bool, again: &mut Again) -> usize {
        let answering = |at: &usize| self.sides[*at].answers.is_some();
        let current = match self.current.filter(|at| read.contains(at)) {
            Some(current) => current,
            None => {
                // The first set, or the side in use was closed.
                let first = read.iter().copied().find(|at| answering(at) && !empty(*at));
                first.or_else(|| read.iter().copied().find(answering)).unwrap_or(read[0])
            }
        };
        let away = self.sides[current].away;
        let left = away.is_some_and(|since| again.is_past(since + self.options.away));
        let mut others = read.iter().copied().filter(|at| *at != current && answering(at));
        let next = others.find(|at| {
            let acceptable = !empty(*at) || empty(current);
            let returned =
                *at < current && self.sides[*at].answers.is_some_and(|since| again.is_past(since + self.options.away));
            acceptable && (left || returned)
        });
        *self.current.insert(next.unwrap_or(current))
    }
}

/// Collects when the next decision is due.
struct Again {
    now: Instant,
    at: Option<Instant>,
}

impl Again {
    /// Whether a moment has come; if not, it is when to decide again.
    fn is_past(&mut self, at: Instant) -> bool {
        if at <= self.now {
            return true;
        }
        self.at = Some(self.at.map_or(at, |known| known.min(at)));
        false
    }
}

/// How long waits are at most, so that a sum of a moment and a wait exists.
pub(super) const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
