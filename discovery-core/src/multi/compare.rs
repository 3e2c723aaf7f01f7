//! What two registries list that the other does not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::choice::LONGEST;
use super::named;
use crate::{Backend, Change, Error, Instance, Result, ServiceNames, Snapshot, Watch};

/// How often two sides are compared again while they differ.
const PACE: Duration = Duration::from_millis(100);

/// How two registries differ, service by service.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The services in which they differ.
    pub services: BTreeMap<Arc<str>, Vec<Difference>>,
    /// How many services were compared.
    pub compared: usize,
    /// How many instances the first of them lists.
    pub instances: usize,
}

/// One difference.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Difference {
    /// The first registry alone lists the instance.
    OnlyFirst(Arc<Instance>),
    /// The second registry alone lists the instance.
    OnlySecond(Arc<Instance>),
    /// Both list it with different records.
    Record(Arc<Instance>, Arc<Instance>),
    /// So many records of the first and of the second cannot be read, so that nobody knows what they say.
    Unreadable(usize, usize),
}

/// What a difference is about; it may be another one by the next look and still be there.
type About = (Arc<str>, Option<Arc<str>>);

impl Difference {
    fn id(&self) -> Option<Arc<str>> {
        match self {
            Self::OnlyFirst(instance) | Self::OnlySecond(instance) | Self::Record(instance, _) => {
                Some(instance.key().id)
            }
            Self::Unreadable(..) => None,
        }
    }
}

impl Report {
    fn about(&self) -> impl Iterator<Item = About> {
        self.services.iter().flat_map(|(service, all)| all.iter().map(|one| (service.clone(), one.id())))
    }

    /// Leaves what was there at every look since then.
    fn keep_since(&mut self, seen: &BTreeMap<About, Instant>, since: Instant) {
        self.services.retain(|service, all| {
            all.retain(|one| seen.get(&(service.clone(), one.id())).is_some_and(|at| *at <= since));
            !all.is_empty()
        });
    }

    /// Whether both registries list the same instances with the same records, so that none is missed where only one of them is asked.
    pub fn is_equal(&self) -> bool {
        self.services.is_empty()
    }
}

/// A line for each difference, and one in the end.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (service, differences) in &self.services {
            for difference in differences {
                writeln!(f, "{service}: {difference}")?;
            }
        }
        let (compared, instances, differ) = (self.compared, self.instances, self.services.len());
        match differ {
            0 => write!(f, "equal: {compared} services with {instances} instances"),
            _ => write!(f, "different: {differ} of {compared} services"),
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OnlyFirst(instance) => write!(f, "{} is only on the first registry", instance.id()),
            Self::OnlySecond(instance) => write!(f, "{} is only on the second registry", instance.id()),
            Self::Record(first, second) => {
                let fields = differing(first, second).join(", ");
                write!(f, "{} differs in {fields}", first.id())
            }
            Self::Unreadable(first, second) => {
                write!(f, "{first} records of the first registry and {second} of the second cannot be read")
            }
        }
    }
}

/// The fields in which two records of an instance differ. Of metadata only the names are said, as their values may not be for everybody.
fn differing(a: &Instance, b: &Instance) -> Vec<String> {
    let mut fields = Vec::new();
    let mut field = |name: &str, a: &dyn fmt::Debug, b: &dyn fmt::Debug| {
        let (a, b) = (format!("{a:?}"), format!("{b:?}"));
        fields.extend((a != b).then(|| format!("{name} ({a}, {b})")));
    };
    let endpoints = |i: &Instance| i.endpoints().iter().map(ToString::to_string).collect::<Vec<_>>();
    field("endpoints", &endpoints(a), &endpoints(b));
    field("weight", &a.weight(), &b.weight());
    field("zone", &a.zone(), &b.zone());
    field("version", &a.version(), &b.version());
    field("state", &a.state(), &b.state());
    field("started_at", &a.started_at(), &b.started_at());
    let names: BTreeSet<_> = a.metadata_iter().chain(b.metadata_iter()).map(|(name, _)| name).collect();
    let differ = names.into_iter().filter(|name| a.metadata(name) != b.metadata(name));
    fields.extend(differ.map(|name| format!("metadata {name:?}")));
    if fields.is_empty() {
        fields.push("fields that this release does not know".to_owned());
    }
    fields
}

/// Compares two registries: all services, or which ids are only on one side and which records differ.
///
/// It answers as soon as they are equal, and at the deadline otherwise: what comes and goes in the meantime reaches one of them first,
/// and only a difference that stays is one, for the second half of the deadline.
///
/// # Errors
/// The reason, naming the registry, if one of them did not answer until the deadline: of sets that are not live nothing is concluded.
///
/// # Cancel safety
/// Safe to drop at any time.
pub async fn compare(first: &dyn Backend, second: &dyn Backend, deadline: Duration) -> Result<Report> {
    let end = Instant::now() + deadline.min(LONGEST);
    let sides = [first, second];
    let names = sides.map(|side| side.watch_services());
    let mut watches: BTreeMap<Arc<str>, [Watch; 2]> = BTreeMap::new();
    let (mut first_look, mut seen) = (None, BTreeMap::new());
    loop {
        let now = Instant::now();
        let last = now >= end;
        let mut report = look(sides, &names, &mut watches);
        if let Ok(report) = &mut report {
            let first_look = *first_look.get_or_insert(now);
            seen = report.about().map(|about| (about.clone(), *seen.get(&about).unwrap_or(&now))).collect();
            if last {
                report.keep_since(&seen, first_look.max(end - deadline.min(LONGEST) / 2));
            }
        }
        match report {
            Ok(report) if report.is_equal() || last => return Ok(report),
            Err(error) if last => return Err(error),
            _ => sleep(PACE.min(end.saturating_duration_since(Instant::now()))).await,
        }
        // A set that is on its way is awaited at once.
        let loading = watches.values().flatten().find(|watch| watch.freshness().is_loading());
        if let Some(watch) = loading {
            // What it does not say in time, the last look says.
            let _ = timeout_at(end, watch.ready(deadline)).await;
        }
    }
}

/// Compares what both show now.
fn look(
    sides: [&dyn Backend; 2],
    names: &[Watch<ServiceNames>; 2],
    watches: &mut BTreeMap<Arc<str>, [Watch; 2]>,
) -> Result<Report> {
    let listed =
        [live(sides[0], "the list of services", &names[0])?, live(sides[1], "the list of services", &names[1])?];
    let all: BTreeSet<_> = listed.iter().flat_map(|names| names.names().iter().cloned()).collect();
    watches.retain(|service, _| all.contains(service));
    // All watches are opened before the first is waited for.
    for service in &all {
        watches.entry(service.clone()).or_insert_with(|| sides.map(|side| side.watch(service)));
    }
    let mut report = Report { compared: all.len(), ..Report::default() };
    for (service, [first, second]) in &*watches {
        let (first, second) = (live(sides[0], service, first)?, live(sides[1], service, second)?);
        report.instances += first.len();
        let differences = differences(&first, &second);
        if !differences.is_empty() {
            report.services.insert(service.clone(), differences);
        }
    }
    Ok(report)
}

fn live<V: crate::snapshot::View>(side: &dyn Backend, subject: &str, watch: &Watch<V>) -> Result<Arc<V>> {
    match watch.latest() {
        Some(view) if view.freshness().is_live() && !watch.is_closed() => Ok(view),
        _ => {
            let (address, freshness) = (side.address(), watch.freshness());
            let sides = [(&*address, freshness.cause())];
            let error = named("compare", subject, sides.into_iter());
            Err(error.unwrap_or_else(|| Error::closed("compare", address)))
        }
    }
}

fn differences(first: &Snapshot, second: &Snapshot) -> Vec<Difference> {
    let changes = second.changes_since(first).into_iter().map(|change| match change {
        Change::Added(instance) => Difference::OnlySecond(instance),
        Change::Removed(instance) => Difference::OnlyFirst(instance),
        Change::Modified(first, second) => Difference::Record(first, second),
    });
    let unreadable = (first.unreadable(), second.unreadable());
    let unread = (unreadable != (0, 0)).then_some(Difference::Unreadable(unreadable.0, unreadable.1));
    changes.chain(unread).collect()
}
