//! The numbers of the policy, and how a URL sets them.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::cache::DiskCache;
use crate::store::Capabilities;
use crate::url::UrlOptions;
use crate::{Error, Result};

/// What to do when a set shrinks sharply across a gap (W9).
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Brake {
    /// Believe the store at once.
    Off,
    /// Hold the instances that vanished, if none is left or more than this share of the set vanished, for a grace.
    Hold {
        /// The share of the set between 0 and 1 that may vanish without being held.
        share: f64,
        /// How long they are held; `None` stands for one TTL, or for [`Policy::backoff`] if that is longer: after an outage the living wait
        /// for that long at most before they are back, and less may end before.
        grace: Option<Duration>,
    },
}

impl Default for Brake {
    /// More than half, until the living have come back.
    fn default() -> Self {
        Self::Hold { share: 0.5, grace: None }
    }
}

/// The brake as a model uses it: settled share and grace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hold {
    pub(crate) share: f64,
    pub(crate) grace: Duration,
}

impl Hold {
    /// Whether losing `vanished` of `before` across a gap is sharp.
    pub(crate) fn is_sharp(&self, before: usize, vanished: usize) -> bool {
        vanished > 0 && (vanished >= before || vanished as f64 > before as f64 * self.share)
    }
}

/// How an engine behaves: every wait, bound and interval in one place.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Policy {
    /// The TTL asked for. Default 10 s, as go-zero: short enough that a crash is noticed, long enough for a pause of the process.
    pub ttl: Duration,
    /// The deadline of each request to the store. Default 3 s.
    pub timeout: Duration,
    /// The deadline of connecting, name resolution and authentication included. Default 5 s.
    pub connect_timeout: Duration,
    /// The longest wait between two tries (R4). Default 10 s.
    pub backoff: Duration,
    /// How often an idle connection is asked for an answer (W12). Default 5 s: with `timeout` a dead one is noticed within 8 s.
    pub probe: Duration,
    /// How often the result of the notifications is compared with the store (W8). Default 30 s.
    pub reconcile: Duration,
    /// What to do when a set shrinks sharply across a gap (W9).
    pub brake: Brake,
    /// Where last good sets are kept on disk, so that a process can start while the store is away. Default nowhere.
    pub cache: Option<DiskCache>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(10),
            timeout: Duration::from_secs(3),
            connect_timeout: Duration::from_secs(5),
            backoff: Duration::from_secs(10),
            probe: Duration::from_secs(5),
            reconcile: Duration::from_secs(30),
            brake: Brake::default(),
            cache: None,
        }
    }
}

/// Below this an interval would be a busy loop.
const SHORTEST: Duration = Duration::from_millis(10);
/// Beyond these, addresses on disk are of no use, or have long been given to others.
const CACHE_AGES: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(30 * 24 * 60 * 60);
/// Above this a timer is a mistake.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

impl Policy {
    /// The brake with its grace settled; `None` if it is off.
    pub(crate) fn hold(&self) -> Option<Hold> {
        match self.brake {
            Brake::Off => None,
            Brake::Hold { share, grace } => Some(Hold { share, grace: grace.unwrap_or(self.ttl.max(self.backoff)) }),
        }
    }

    /// Reads `ttl`, `timeout`, `connect_timeout`, `backoff`, `probe`, `reconcile`, `brake` (`off` or a percentage), `grace`, `cache` (a
    /// directory) and `cache_age`.
    ///
    /// # Errors
    /// `InvalidInput` for a value that is malformed or out of bounds.
    pub fn from_url(options: &mut UrlOptions) -> Result<Self> {
        let mut policy = Self::default();
        for (name, field) in [
            ("ttl", &mut policy.ttl),
            ("timeout", &mut policy.timeout),
            ("connect_timeout", &mut policy.connect_timeout),
            ("backoff", &mut policy.backoff),
            ("probe", &mut policy.probe),
            ("reconcile", &mut policy.reconcile),
        ] {
            if let Some(duration) = options.duration(name)? {
                // A TTL of 0 is left to the store's own bounds, which say it better.
                if name != "ttl" && !(SHORTEST..=LONGEST).contains(&duration) {
                    return Err(options.invalid(name, "is out of bounds; from 10ms to 1day is allowed"));
                }
                *field = duration;
            }
        }
        let grace = options.duration("grace")?;
        policy.brake = match options.text("brake").as_deref() {
            None => Brake::Hold { share: 0.5, grace },
            Some("off") => Brake::Off,
            Some(text) => match text.trim_end_matches('%').parse::<u8>() {
                Ok(percent) if percent <= 100 => Brake::Hold { share: f64::from(percent) / 100.0, grace },
                _ => {
                    return Err(options.invalid("brake", "is neither `off` nor a percentage from 0 to 100"));
                }
            },
        };
        let (directory, age) = (options.text("cache"), options.duration("cache_age")?);
        policy.cache = match (directory, age) {
            (None, None) => None,
            (None, Some(_)) => return Err(options.invalid("cache_age", "means nothing without `cache`, a directory")),
            (Some(directory), _) if directory.is_empty() => return Err(options.invalid("cache", "names no directory")),
            (Some(directory), None) => Some(DiskCache::new(directory)),
            (Some(directory), Some(age)) if CACHE_AGES.contains(&age) => {
                Some(DiskCache::new(directory).with_max_age(age))
            }
            (Some(_), Some(_)) => {
                return Err(options.invalid("cache_age", "is out of bounds; from 1s to 30days is allowed"));
            }
        };
        Ok(policy)
    }

    /// Checks the TTL against what the store grants (R12).
    ///
    /// # Errors
    /// `InvalidInput`, naming the bounds.
    pub fn check(&self, capabilities: &Capabilities) -> Result<()> {
        let Capabilities { backend, min_ttl, max_ttl, registers, .. } = capabilities;
        if *registers && !(*min_ttl..=*max_ttl).contains(&self.ttl) {
            return Err(Error::invalid(
                "use",
                format!("a TTL of {:?}", self.ttl),
                format!("{backend} grants from {min_ttl:?} to {max_ttl:?}"),
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RegistryUrl;

    fn read(text: &str) -> Result<Policy> {
        let mut options = text.parse::<RegistryUrl>().unwrap().options();
        let policy = Policy::from_url(&mut options)?;
        options.finish()?;
        Ok(policy)
    }

    #[test]
    fn a_url_sets_every_number() {
        let policy = read("x://h?ttl=3s&backoff=2s&probe=1s&reconcile=1m&timeout=500ms&brake=30&grace=4s").unwrap();
        assert_eq!((policy.ttl, policy.backoff), (Duration::from_secs(3), Duration::from_secs(2)));
        assert_eq!(policy.brake, Brake::Hold { share: 0.3, grace: Some(Duration::from_secs(4)) });
        assert_eq!(read("x://h?brake=off").unwrap().brake, Brake::Off);
        let cache = DiskCache::new("/var/cache/pay").with_max_age(Duration::from_secs(3_600));
        assert_eq!(read("x://h?cache=/var/cache/pay&cache_age=1h").unwrap().cache, Some(cache));
        assert_eq!((read("x://h?cache=a").unwrap().cache, policy.cache), (Some(DiskCache::new("a")), None));
        for bad in ["cache=", "cache_age=1h", "cache=a&cache_age=0s", "cache=a&cache_age=1year"] {
            assert!(read(&format!("x://h?{bad}")).is_err(), "{bad}");
        }
        for bad in ["probe=0s", "timeout=1ms", "reconcile=100days", "brake=101", "brake=most", "grace=x"] {
            assert!(read(&format!("x://h?{bad}")).is_err(), "{bad}");
        }
    }
}
