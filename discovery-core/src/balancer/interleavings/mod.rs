//! What threads do to the counters of the read path at the same time, in every order that there is (loom, `--cfg discovery_loom`).
//!
//! CONTRIBUTING.md has the command. The other tests cannot run in that build: loom's atomics exist only inside of a model.

mod counting;
mod ejecting;
mod timing;

use std::sync::Arc;

use super::builder::Builder;
use super::health::Bell;
use super::selection::Selection;
use super::tab::Tabs;
use super::{BalancerOptions, Member};
use crate::picker::Random;
use crate::{Freshness, Instance, InstanceSet, Snapshot};

/// Runs it in every order in which no more than three times a thread that could go on has to wait: more take hours, and faults that need more
/// are rare (M. Musuvathi and S. Qadeer, "Iterative Context Bounding for Systematic Testing of Multithreaded Programs", PLDI 2007).
/// `LOOM_MAX_PREEMPTIONS` sets another number.
fn model(f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.check(f);
}

/// What does not change from one order to the next, so that it is made once.
struct Set {
    snapshot: Snapshot,
    options: BalancerOptions,
}

impl Set {
    fn new(ids: &[&str]) -> Self {
        let mut instances = InstanceSet::default();
        for id in ids {
            instances.insert(Arc::new(Instance::builder("s").id(*id).endpoint("grpc://h:1").build().unwrap()));
        }
        let snapshot = Snapshot { freshness: Freshness::Live, instances, ..Snapshot::loading("s".into()) };
        Self { snapshot, options: BalancerOptions::default() }
    }

    /// The balancer's first selection of it, and a second one.
    fn selections(&self, tabs: &Arc<Tabs>) -> [Arc<Selection>; 2] {
        let mut builder = Builder::new(Random, Bell::new(), tabs.clone(), self.options.clone());
        let first = builder.build(&self.snapshot, None);
        let second = builder.build(&self.snapshot, Some(&first));
        [first.into(), second.into()]
    }
}

/// The first of a selection.
fn first(selection: &Selection) -> &Member {
    &selection.first.members[0]
}
