//! A picker of one's own in thirty lines: the instance with the lowest value of a metadata field, by turns where several share it.
#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use discovery_kit::{Balancer, Context, Instance, Member, Outcome, Picker, RegisterOptions};

/// Knows the cheapest members of one membership; the balancer builds a new one whenever the set changes.
struct Cheapest {
    cheapest: Vec<usize>,
    turn: AtomicUsize,
}

impl Cheapest {
    fn new(members: &[Member]) -> Self {
        let cost = |member: &Member| -> u32 {
            member.instance().metadata("cost").and_then(|text| text.parse().ok()).unwrap_or(u32::MAX)
        };
        let lowest = members.iter().map(cost).min();
        let cheapest = (0..members.len()).filter(|at| Some(cost(&members[*at])) == lowest).collect();
        Self { cheapest, turn: AtomicUsize::new(0) }
    }
}

impl Picker for Cheapest {
    fn pick(&self, _members: &[Member], _context: &Context<'_>) -> Option<usize> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        Some(self.cheapest[turn.checked_rem(self.cheapest.len())?])
    }
}

#[tokio::main]
async fn main() -> discovery_kit::Result<()> {
    let registry = discovery_kit::connect("memory:")?;
    let mut held = Vec::new();
    for (host, cost) in [("10.0.0.1", "30"), ("10.0.0.2", "10"), ("10.0.0.3", "10")] {
        let instance =
            Instance::builder("orders").endpoint(&format!("grpc://{host}:9000")).metadata("cost", cost).build()?;
        held.push(registry.register(instance, RegisterOptions::default()).await?);
    }
    let watch = registry.watch("orders");
    watch.ready(Duration::from_secs(1)).await?;
    // A function from members to a picker is a factory.
    let balancer = Balancer::new(watch, Cheapest::new);
    for _ in 0..4 {
        let pick = balancer.pick(&Context::default())?;
        println!("{}", pick.instance().id());
        pick.finish(Outcome::Success);
    }
    Ok(())
}
