//! Builds selections, and looks after what only the balancer's task may decide: ejections and the steps of slow start.
//!
//! A selection costs what the set is large: one walk to carry members over, one to plan, one for each tier.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::ejection::Quota;
use super::flight::Cell;
use super::health::{Bell, Health, Heed, Objection};
use super::plan::{Group, Level, plan};
use super::selection::Selection;
use super::slow_start::{self, Steps};
use super::tab::Tabs;
use super::tier::{Tier, keeps};
use super::{BalancerOptions, Member};
use crate::Instance;
use crate::picker::{Picker, PickerFactory};
use crate::snapshot::Snapshot;

/// What selections are built with.
pub(super) struct Builder<F> {
    factory: F,
    /// For all levels but the first that there was, if the factory cannot serve several.
    others: BTreeMap<Level, Box<dyn PickerFactory>>,
    main: Option<Level>,
    /// Whether the pickers start newcomers by weight. Known from the first selection on, in which nobody starts slowly.
    by_weight: bool,
    bell: Bell,
    tabs: Arc<Tabs>,
    options: BalancerOptions,
    quota: Arc<Quota>,
    steps: Option<Steps>,
    /// When rates are judged next.
    judging: Option<Instant>,
    /// When the next ejection ends.
    readmission: Option<Instant>,
    /// When those who start slowly get more.
    step: Option<Instant>,
}

impl<F: PickerFactory> Builder<F> {
    pub(super) fn new(factory: F, bell: Bell, tabs: Arc<Tabs>, options: BalancerOptions) -> Self {
        let now = Instant::now();
        let outliers = options.outliers.as_ref();
        let judging = outliers.filter(|rules| rules.judges_rates()).and_then(|rules| now.checked_add(rules.interval));
        Self {
            factory,
            others: BTreeMap::new(),
            main: None,
            by_weight: true,
            bell,
            tabs,
            quota: Arc::new(Quota::new(outliers.and_then(|rules| rules.consecutive_failures).map(Into::into))),
            steps: options.slow_start.as_ref().and_then(|rule| Steps::new(rule, now)),
            options,
            judging,
            readmission: None,
            step: None,
        }
    }

    /// When something has to be done without anybody ringing.
    pub(super) fn wake(&self) -> Option<Instant> {
        [self.judging, self.readmission, self.step].into_iter().flatten().min()
    }

    /// Judges, ejects and readmits. Returns whether a selection has to be built because of time alone.
    pub(super) fn attend(&mut self, known: &[Member], now: Instant) -> bool {
        let Some(rules) = &self.options.outliers else {
            return self.step.is_some_and(|step| step <= now);
        };
        if self.judging.is_some_and(|at| at <= now) {
            rules.judge(known);
            self.judging = now.checked_add(rules.interval.max(std::time::Duration::from_millis(1)));
        }
        self.readmission = None;
        for member in known {
            let health = &member.cell().flights().health;
            if !health.has(Objection::Ejected) {
                continue;
            }
            let sentence = &mut member.cell().notes().sentence;
            let until = sentence.serve(rules, now);
            if until <= now {
                sentence.end(now);
                health.readmit();
            } else {
                self.readmission = Some(self.readmission.map_or(until, |first| first.min(until)));
            }
        }
        self.step.is_some_and(|step| step <= now)
    }

    pub(super) fn build(&mut self, snapshot: &Snapshot, before: Option<&Selection>) -> Selection {
        // Read first: what rings while this is built is heeded by the next one.
        let health = self.bell.rings();
        let now = Instant::now();
        let (known, gone) = self.carry_over(snapshot, before, now);
        let plan = plan(&known, &self.options);
        if let Some(rules) = &self.options.outliers {
            self.quota.limit_to(rules.limit(plan.admitted));
        }
        let shares = self.shares(&known, now);
        let by_weight = shares.as_ref().filter(|_| self.by_weight).map(|shares| (shares, scale(&known, shares)));
        let ends = ends(&plan.groups);
        self.others.retain(|level, _| plan.groups.iter().any(|group| group.level == *level));
        let mut tiers = plan.groups.into_iter().map(|group| {
            let share_of = |at: &usize| shares.as_ref().map_or(1.0, |shares| shares[*at]);
            let members = group.members.iter().map(|at| {
                let member = &known[*at];
                match by_weight {
                    None => member.clone(),
                    Some((shares, scale)) => member.weighing(slow_start::weight(member.weight() * scale, shares[*at])),
                }
            });
            let members: Box<[_]> = members.collect();
            let picker = self.picker(group.level, &members, before);
            let starts = !picker.starts_by_weight() && group.members.iter().any(|at| share_of(at) < 1.0);
            let keeps = starts.then(|| keeps(&group.members.iter().map(share_of).collect::<Vec<_>>()));
            let Group { level, share, heed, panics, .. } = group;
            Tier { level, share, panics, heed, members, picker, keeps }
        });
        let first = tiers.next();
        let more: Box<[_]> = tiers.collect();
        let first = first.unwrap_or_else(|| self.nobody(before));
        self.by_weight = first.picker.starts_by_weight();
        // Not before everything of the user's has run: if that panics, they are still there the next time.
        gone.into_iter().for_each(|member| member.cell().flights().health.retire());
        let is_timed = first.picker.is_timed() || more.iter().any(|tier| tier.picker.is_timed());
        Selection {
            number: before.map_or(0, |before| before.number + 1),
            service: snapshot.service().into(),
            freshness: snapshot.freshness().clone(),
            health,
            known,
            places: plan.places.into(),
            shares: shares.map(Into::into),
            is_plain: more.is_empty() && first.keeps.is_none(),
            first,
            more,
            ends,
            spill_factor: self.options.zone.as_ref().and_then(|zone| zone.spill_factor()),
            is_timed,
        }
    }

    fn nobody(&mut self, before: Option<&Selection>) -> Tier {
        let level = self.main.unwrap_or_default();
        let picker = self.picker(level, &[], before);
        Tier { level, share: 1.0, panics: false, heed: Heed::ALL, members: Box::default(), picker, keeps: None }
    }

    /// The picker of a tier: the one from before, if nothing changed for it.
    fn picker(&mut self, level: Level, members: &[Member], before: Option<&Selection>) -> Arc<dyn Picker> {
        // A change of freshness, or of somebody who is not picked, is no reason to begin anew.
        let before = before.and_then(|before| before.tiers().find(|tier| tier.level == level));
        if let Some(before) = before.filter(|before| same(&before.members, members)) {
            return before.picker.clone();
        }
        if *self.main.get_or_insert(level) == level {
            return self.factory.build(members).into();
        }
        if let Some(other) = self.others.get(&level) {
            return other.build(members).into();
        }
        match self.factory.another() {
            Some(other) => self.others.entry(level).or_insert(other).build(members).into(),
            None => self.factory.build(members).into(),
        }
    }

    /// Which part of its weight everybody has, while anybody starts slowly.
    fn shares(&mut self, known: &[Member], now: Instant) -> Option<Vec<f64>> {
        let steps = self.steps.as_ref()?;
        let share = |member: &Member| member.cell().joined().map_or(1.0, |joined| steps.share(joined, now));
        let starts = known.iter().any(|member| share(member) < 1.0);
        self.step = if starts { steps.next(now) } else { None };
        starts.then(|| known.iter().map(share).collect())
    }

    /// Gives every instance its cell from before, and finds those that are gone; both lists are sorted by id, so one walk suffices.
    fn carry_over<'a>(
        &self,
        snapshot: &Snapshot,
        before: Option<&'a Selection>,
        now: Instant,
    ) -> (Box<[Member]>, Vec<&'a Member>) {
        // Nobody joined whom the first set has.
        let joined = before.filter(|before| !before.freshness.is_loading()).map(|_| now);
        let mut gone = Vec::new();
        let mut before = before.map_or(&[][..], |before| &before.known).iter().peekable();
        let mut known = Vec::with_capacity(snapshot.len());
        for instance in snapshot.instances().iter() {
            while let Some(member) = before.next_if(|member| member.instance().id() < instance.id()) {
                gone.push(member);
            }
            known.push(match before.next_if(|member| member.instance().id() == instance.id()) {
                Some(member) if Arc::ptr_eq(member.instance(), instance) => member.clone(),
                Some(member) => {
                    member.cell().renew(instance.clone());
                    if instance.started_at() != member.instance().started_at() {
                        // Another process under the same id, as cold as any other.
                        member.cell().notes().joined = joined;
                    }
                    Member::new(instance.clone(), instance.weight(), member.cell().clone())
                }
                None => self.join(instance, joined),
            });
        }
        gone.extend(before);
        (known.into(), gone)
    }

    fn join(&self, instance: &Arc<Instance>, joined: Option<Instant>) -> Member {
        let health = Health::new(self.quota.clone(), self.bell.clone());
        let cell = Cell::new(instance.clone(), health, self.options.clock.clone(), joined, self.tabs.clone());
        Member::new(instance.clone(), instance.weight(), Arc::new(cell))
    }
}

fn same(before: &[Member], now: &[Member]) -> bool {
    before.len() == now.len() && before.iter().zip(now).all(|(a, b)| a.is_same(b))
}

fn scale(known: &[Member], shares: &[f64]) -> u32 {
    let largest = known.iter().map(Member::weight).max().unwrap_or(0);
    let starting = known.iter().zip(shares).filter(|(member, share)| **share < 1.0 && member.weight() > 0);
    slow_start::scale(largest, starting.map(|(member, _)| member.weight()).min().unwrap_or(u32::MAX))
}

/// Where the share of each tier ends, in 2^-32. The last with a share ends at 2^32, whatever rounding left over.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 0 and 2^32")]
fn ends(groups: &[Group]) -> Box<[u64]> {
    const ALL: f64 = 4_294_967_296.0;
    let last = groups.iter().rposition(|group| group.share > 0.0);
    let mut sum = 0.0;
    let ends = groups.iter().enumerate().map(|(at, group)| {
        sum += group.share;
        if Some(at) >= last { 1 << 32 } else { (sum * ALL) as u64 }
    });
    ends.collect()
}
