//! What was written into a log, and how often the same.

use std::collections::HashMap;
use std::time::Duration;

/// A line: its second of the day, and what it says without its numbers.
pub(super) type Line = (f64, String);

const DAY: f64 = 24.0 * 60.0 * 60.0;

/// The lines of a log that begin with a time such as `2026-01-02T03:04:05.678Z`.
pub(super) fn written(log: &str) -> Vec<Line> {
    log.lines().filter_map(line).collect()
}

fn line(text: &str) -> Option<Line> {
    let (time, says) = text.trim_start().split_once("Z ")?;
    let mut clock = time.split_once('T')?.1.splitn(3, ':').map(|part| part.parse::<f64>().ok());
    let seconds = (clock.next()?? * 60.0 + clock.next()??) * 60.0 + clock.next()??;
    Some((seconds, says.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect()))
}

/// How often the same was said within some time at most, and what.
pub(super) fn most_repeated(lines: &[Line], within: Duration) -> (usize, String) {
    let mut times: HashMap<&str, Vec<f64>> = HashMap::new();
    for (at, says) in lines {
        times.entry(says).or_default().push(*at);
    }
    let since = |from: f64, at: f64| (at - from).rem_euclid(DAY) < within.as_secs_f64();
    let most = |times: &[f64]| {
        let behind = |n: usize| times[n..].iter().take_while(|at| since(times[n], **at)).count();
        (0..times.len()).map(behind).max().unwrap_or(0)
    };
    let counted = times.iter().map(|(says, times)| (most(times), (*says).to_owned()));
    counted.max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_line_is_counted_whatever_its_numbers_are() {
        let log = "2026-11-30T23:59:58.5Z  WARN core: lost 1\nholds 1 2\n2026-11-30T23:59:59.0Z  WARN core: other\n\
            2026-12-01T00:00:01.0Z  WARN core: lost 22\n2026-12-01T00:00:04.0Z  WARN core: lost 3\n";
        let lines = written(&log.replace("lost 22", "lost 2"));
        assert_eq!(lines.len(), 4);
        assert_eq!(most_repeated(&lines, Duration::from_secs(5)), (2, " WARN core: lost #".to_owned()));
        assert_eq!(most_repeated(&lines, Duration::from_secs(6)).0, 3);
    }
}
