//! Why an instance gets the requests that it gets.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::ejection::EjectionCause;
use super::health::{Heed, Objection};
use super::plan::{Level, Place};
use super::selection::Selection;
use super::tier::Tier;
use super::{BalancerOptions, Member};
use crate::Instance;

/// How much of its share an instance gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Traffic {
    /// What the picker gives to a member like it.
    Full,
    /// Less, for the reasons given.
    Less,
    /// Nothing, for the reasons given.
    None,
}

/// Why an instance gets less than its share, or gets it all the same.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Reason {
    /// The filter of this name does not admit it.
    Filtered(Arc<str>),
    /// Its weight is 0.
    NoWeight,
    /// It is draining while others serve.
    Draining,
    /// It cannot be reached.
    Unreachable,
    /// Its health check failed, and why.
    Unhealthy(Arc<str>),
    /// It is ejected for what became of its requests.
    Ejected {
        /// What became of them.
        cause: EjectionCause,
        /// Until when, by the wall clock.
        until: SystemTime,
    },
    /// Too few are healthy, so objections against it are ignored (P4).
    Panic,
    /// Its priority or zone has so much of all requests.
    Tier {
        /// The priority, 0 if there is but one.
        priority: u32,
        /// Whether it is in another zone than the caller.
        elsewhere: bool,
        /// From 0 to 1. With 0 it gets at most what the caller's zone is too busy for.
        share: f64,
    },
    /// The picker never chooses it, such as one outside of a [`Subset`](crate::picker::Subset).
    NotChosen,
    /// The set is older than [allowed](crate::StalePolicy), so nobody gets anything.
    TooStale,
    /// It joined or was restarted a short time ago, and has this part of its weight, from 0 to 1.
    SlowStart(f64),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Filtered(name) => write!(f, "filtered out by {name:?}"),
            Self::NoWeight => f.write_str("its weight is 0"),
            Self::Draining => f.write_str("it is draining while others serve"),
            Self::Unreachable => f.write_str("it cannot be reached"),
            Self::Unhealthy(why) => write!(f, "unhealthy: {why}"),
            Self::Ejected { cause, until } => {
                let until = humantime::format_rfc3339_seconds(*until);
                write!(f, "ejected until {until} because {cause}")
            }
            Self::Panic => f.write_str("too few are healthy, so objections are ignored"),
            Self::Tier { priority, elsewhere, share } => {
                let zone = if *elsewhere { " in another zone" } else { "" };
                write!(f, "priority {priority}{zone} has {:.1} % of all requests", share * 100.0)
            }
            Self::NotChosen => f.write_str("the picker never chooses it"),
            Self::TooStale => f.write_str("the set is older than allowed"),
            Self::SlowStart(share) => write!(f, "it starts slowly, at {:.0} % of its weight", share * 100.0),
        }
    }
}

/// How an instance stands in a balancer at a moment.
#[derive(Debug, Clone)]
pub struct Standing {
    instance: Arc<Instance>,
    traffic: Traffic,
    reasons: Vec<Reason>,
}

impl Standing {
    /// The instance.
    pub fn instance(&self) -> &Arc<Instance> {
        &self.instance
    }

    /// How much of its share it gets.
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Why; empty where there is nothing to say.
    pub fn reasons(&self) -> &[Reason] {
        &self.reasons
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let traffic = match self.traffic {
            Traffic::Full => "gets its share",
            Traffic::Less => "gets less than its share",
            Traffic::None => "gets nothing",
        };
        write!(f, "{}: {traffic}", self.instance.id())?;
        for (reason, before) in self.reasons.iter().zip(std::iter::once(": ").chain(std::iter::repeat("; "))) {
            write!(f, "{before}{reason}")?;
        }
        Ok(())
    }
}

pub(super) fn explain(selection: &Selection, options: &BalancerOptions, is_too_stale: bool) -> Vec<Standing> {
    let share = |at: usize| selection.shares.as_ref().and_then(|shares| shares.get(at)).map_or(1.0, |share| *share);
    let all = selection.known.iter().zip(&selection.places).enumerate();
    let mut standings: Vec<_> =
        all.map(|(at, (member, place))| standing(selection, options, member, *place, share(at))).collect();
    if is_too_stale {
        for standing in &mut standings {
            standing.traffic = Traffic::None;
            standing.reasons.push(Reason::TooStale);
        }
    }
    standings
}

/// Whether a tier has less of all requests than its members have of all weight.
fn has_less(selection: &Selection, tier: &Tier) -> bool {
    let weight = |tier: &Tier| tier.members.iter().map(|member| f64::from(member.weight())).sum::<f64>();
    // A hair less is a rounding.
    tier.share < 0.999 * weight(tier) / selection.tiers().map(weight).sum::<f64>()
}

fn standing(selection: &Selection, options: &BalancerOptions, member: &Member, place: Place, share: f64) -> Standing {
    let objections = || objections(member);
    let tier = |level: Level, share| Reason::Tier { priority: level.priority, elsewhere: level.elsewhere, share };
    let (traffic, reasons) = match place {
        Place::Filtered(number) => {
            let name = options.filters.get(number).map(|filter| filter.name().clone());
            (Traffic::None, vec![Reason::Filtered(name.unwrap_or_default())])
        }
        Place::NoWeight => (Traffic::None, vec![Reason::NoWeight]),
        Place::Draining => (Traffic::None, [vec![Reason::Draining], objections()].concat()),
        Place::Objected => (Traffic::None, objections()),
        Place::Waiting(level) => (Traffic::None, vec![tier(level, 0.0)]),
        Place::Tier(number) => match selection.tier(number) {
            Some(of) => {
                let (admitted, mut reasons) = (of.admits(member), objections());
                if admitted && of.panics && !Heed::ALL.admits(member.objections()) {
                    reasons.push(Reason::Panic);
                }
                if !selection.more.is_empty() {
                    reasons.push(tier(of.level, of.share));
                }
                if share < 1.0 {
                    reasons.push(Reason::SlowStart(share));
                }
                let at = of.members.binary_search_by(|other| other.instance().id().cmp(member.instance().id()));
                let chosen = at.is_ok_and(|at| of.picker.may_pick(at));
                if !chosen {
                    reasons.push(Reason::NotChosen);
                }
                let traffic = if share < 1.0 || has_less(selection, of) { Traffic::Less } else { Traffic::Full };
                (if admitted && chosen { traffic } else { Traffic::None }, reasons)
            }
            None => (Traffic::None, Vec::new()),
        },
    };
    Standing { instance: member.instance().clone(), traffic, reasons }
}

fn objections(member: &Member) -> Vec<Reason> {
    let (objections, health, mut reasons) = (member.objections(), &member.cell().flights().health, Vec::new());
    if objections.has(Objection::Unreachable) {
        reasons.push(Reason::Unreachable);
    }
    let notes = member.cell().notes();
    if objections.has(Objection::Unhealthy) {
        reasons.push(Reason::Unhealthy(notes.unhealthy.clone().unwrap_or_default()));
    }
    if objections.has(Objection::Ejected) {
        // An ejection of this very moment has no end yet.
        let left =
            notes.sentence.until().map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()));
        let until = SystemTime::now().checked_add(left).unwrap_or(SystemTime::UNIX_EPOCH);
        reasons.push(Reason::Ejected { cause: health.cause(), until });
    }
    reasons
}
