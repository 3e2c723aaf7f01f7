//! How many checks in a row make an instance unhealthy, and healthy again.

use crate::Verdict;

/// What a tally goes by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Thresholds {
    pub(crate) unhealthy_after: u32,
    pub(crate) healthy_after: u32,
}

/// Counts the checks of one instance.
#[derive(Debug)]
pub(crate) struct Tally {
    verdict: Verdict,
    /// How the last check ended, and how many in a row ended like it.
    well: bool,
    in_a_row: u32,
}

impl Tally {
    pub(crate) fn new(verdict: Verdict) -> Self {
        Self { verdict, well: true, in_a_row: 0 }
    }

    pub(crate) fn verdict(&self) -> Verdict {
        self.verdict
    }

    pub(crate) fn in_a_row(&self) -> u32 {
        self.in_a_row
    }

    /// Hears how a check ended, and returns whether that changes the verdict.
    pub(crate) fn hear(&mut self, well: bool, thresholds: Thresholds) -> bool {
        self.in_a_row = if self.well == well { self.in_a_row.saturating_add(1) } else { 1 };
        self.well = well;
        let next = match (self.verdict, well) {
            // Whoever was healthy all along has nothing to show anew.
            (Verdict::Unknown, true) => Verdict::Healthy,
            (Verdict::Unhealthy, true) if self.in_a_row >= thresholds.healthy_after => Verdict::Healthy,
            (_, false) if self.in_a_row >= thresholds.unhealthy_after => Verdict::Unhealthy,
            (same, _) => same,
        };
        let changed = next != self.verdict;
        self.verdict = next;
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verdict after each of these checks, `+` for well, as letters: unknown, healthy, sick.
    fn verdicts(checks: &str, unhealthy_after: u32, healthy_after: u32) -> String {
        let mut tally = Tally::new(Verdict::Unknown);
        let mut before = Verdict::Unknown;
        let each = checks.chars().map(|check| {
            let changed = tally.hear(check == '+', Thresholds { unhealthy_after, healthy_after });
            assert_eq!(changed, tally.verdict() != before);
            before = tally.verdict();
            match before {
                Verdict::Healthy => 'h',
                Verdict::Unhealthy => 's',
                _ => 'u',
            }
        });
        each.collect()
    }

    #[test]
    fn verdicts_flip_at_the_thresholds_and_not_before() {
        for (checks, unhealthy_after, healthy_after, expected) in [
            ("+", 3, 2, "h"),
            ("---", 3, 1, "uus"),
            ("--+--+---", 3, 1, "uuhhhhhhs"),
            ("---+", 3, 1, "uush"),
            ("---+-++", 3, 2, "uussssh"),
            ("+-+-+-+-", 2, 2, "hhhhhhhh"),
            ("-", 1, 1, "s"),
            ("--+-+-+", 1, 2, "sssssss"),
        ] {
            assert_eq!(verdicts(checks, unhealthy_after, healthy_after), expected, "{checks}");
        }
    }

    #[test]
    fn counts_never_overflow() {
        let mut tally = Tally { verdict: Verdict::Healthy, well: false, in_a_row: u32::MAX };
        assert!(tally.hear(false, Thresholds { unhealthy_after: u32::MAX, healthy_after: 1 }));
        assert_eq!(tally.in_a_row(), u32::MAX);
    }
}
