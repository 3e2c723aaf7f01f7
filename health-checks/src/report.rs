//! What a checker knows of an instance.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use discovery_core::{Endpoint, Error, Result};

/// What the checks of an instance say. Only [`Unhealthy`](Self::Unhealthy) keeps requests away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It has no endpoint with a fitting scheme.
    Unchecked,
    /// No check has succeeded yet, and too few have failed.
    Unknown,
    /// It does its work.
    Healthy,
    /// It does not.
    Unhealthy,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unchecked => "not checked",
            Self::Unknown => "unknown",
            Self::Healthy => "healthy",
            Self::Unhealthy => "unhealthy",
        })
    }
}

/// How a check ended.
#[derive(Debug, Clone)]
pub struct LastCheck {
    pub(crate) at: SystemTime,
    pub(crate) took: Duration,
    pub(crate) outcome: Result<()>,
}

impl LastCheck {
    /// When it ended, by the wall clock.
    pub fn at(&self) -> SystemTime {
        self.at
    }

    /// How long it took, without its wait for a slot.
    pub fn took(&self) -> Duration {
        self.took
    }

    /// Why it failed, if it did.
    pub fn failure(&self) -> Option<&Error> {
        self.outcome.as_ref().err()
    }
}

/// What a checker knows of an instance at a moment.
#[derive(Debug, Clone)]
pub struct Report {
    pub(crate) id: Arc<str>,
    pub(crate) endpoint: Option<Endpoint>,
    pub(crate) verdict: Verdict,
    pub(crate) since: SystemTime,
    pub(crate) checks: u64,
    pub(crate) in_a_row: u32,
    pub(crate) last: Option<LastCheck>,
    pub(crate) why: Option<Arc<str>>,
}

impl Report {
    pub(crate) fn new(id: Arc<str>, endpoint: Option<Endpoint>) -> Self {
        let verdict = if endpoint.is_some() { Verdict::Unknown } else { Verdict::Unchecked };
        let since = SystemTime::now();
        Self { id, endpoint, verdict, since, checks: 0, in_a_row: 0, last: None, why: None }
    }

    /// The instance's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The endpoint that is checked, if one fits.
    pub fn endpoint(&self) -> Option<&Endpoint> {
        self.endpoint.as_ref()
    }

    /// What the checks say.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Since when they say so, by the wall clock.
    pub fn since(&self) -> SystemTime {
        self.since
    }

    /// How many checks have ended.
    pub fn checks(&self) -> u64 {
        self.checks
    }

    /// How many of the last checks in a row ended as the last one did.
    pub fn in_a_row(&self) -> u32 {
        self.in_a_row
    }

    /// The last check, if one has ended.
    pub fn last(&self) -> Option<&LastCheck> {
        self.last.as_ref()
    }

    /// While it is unhealthy: what the last failed check found, as balancers are told.
    pub fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, verdict, in_a_row, .. } = self;
        let seconds = self.since.elapsed().unwrap_or_default().as_secs();
        write!(f, "{id}: {verdict} for {seconds} s")?;
        match self.last.as_ref().map(LastCheck::failure) {
            None => Ok(()),
            Some(None) => write!(f, "; it was well {in_a_row} times in a row"),
            Some(Some(error)) => write!(f, "; it failed {in_a_row} times in a row: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_reads_as_a_sentence() {
        let mut report = Report::new("a".into(), "http://h:1".parse().ok());
        assert_eq!(report.to_string(), "a: unknown for 0 s");
        report.in_a_row = 2;
        report.last = Some(LastCheck { at: SystemTime::now(), took: Duration::ZERO, outcome: Ok(()) });
        assert_eq!(report.to_string(), "a: unknown for 0 s; it was well 2 times in a row");
        assert_eq!(Report::new("b".into(), None).to_string(), "b: not checked for 0 s");
    }
}
