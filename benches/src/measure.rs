//! Rounds, medians and how they are printed.

use std::time::Duration;

/// Rounds that warm up and do not count, and rounds that do.
pub(crate) const WARM_UP: usize = 2;
pub(crate) const ROUNDS: usize = 9;

/// Prints `name median unit (min … max)`.
pub(crate) fn print(name: &str, values: &[f64], unit: &str) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (Some(min), Some(max)) = (sorted.first(), sorted.last()) else { return };
    println!("{name} {:.3} {unit} (min {min:.3}, max {max:.3}, rounds {})", sorted[sorted.len() / 2], sorted.len());
}

pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
