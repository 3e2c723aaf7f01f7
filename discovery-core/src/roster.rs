//! Whom a load balancer of somebody else's should call, and what it should do to stay in step with a watched set.
//!
//! [`Balancer`](crate::Balancer) needs none of this. An adapter for another stack does, since that stack knows nothing of weights, of
//! draining, or of instances that answer under another scheme.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{Endpoint, Instance, Snapshot, State};

impl Snapshot {
    /// Whom to call, and where, as far as the records say; sorted by id.
    ///
    /// An instance is called at its first endpoint with one of these schemes, in the order of `schemes`. Who has none of them, or the
    /// weight 0, is left out, and so are the draining unless nobody else is there.
    pub fn callees(&self, schemes: &[&str]) -> Vec<(&Arc<Instance>, &Endpoint)> {
        let (mut serving, mut draining) = (Vec::new(), Vec::new());
        for instance in self.instances().iter().filter(|instance| instance.weight() > 0) {
            let Some(endpoint) = instance.endpoint(schemes) else {
                continue;
            };
            let side = if instance.state() == State::Draining { &mut draining } else { &mut serving };
            side.push((instance, endpoint));
        }
        if serving.is_empty() { draining } else { serving }
    }
}

/// What to do to have the instances of the newest set.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Call this instance here from now on.
    Join(Arc<Instance>, Endpoint),
    /// Call the instance with this id no more.
    Leave(Arc<str>),
}

/// Remembers who was told to a load balancer, and says what to tell it next.
///
/// ```
/// use discovery_core::{Discovery, Roster, fixed};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> discovery_core::Result<()> {
/// let backend = fixed::connect(&"static:///10.0.0.5:9000,10.0.0.6:9000".parse()?)?;
/// let set = backend.snapshot("orders", std::time::Duration::from_secs(1)).await?;
/// let mut roster = Roster::new(&["http", "tcp"]);
/// assert_eq!(roster.update(&set).len(), 2); // two join
/// assert_eq!(roster.update(&set).len(), 0); // nothing new
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Roster {
    schemes: &'static [&'static str],
    /// Where those who joined are called, by id.
    joined: BTreeMap<Arc<str>, Endpoint>,
}

impl Roster {
    /// Nobody yet; instances are called at their first endpoint with one of these schemes, in this order.
    pub fn new(schemes: &'static [&'static str]) -> Self {
        Self { schemes, joined: BTreeMap::new() }
    }

    /// The steps from the set of the last call to this one's [callees](Snapshot::callees).
    ///
    /// A changed address is a leave and a join; any other change of a record is none. Newcomers come first, so that whoever takes the
    /// steps one by one never stands without anybody in between. It costs the set's size.
    pub fn update(&mut self, set: &Snapshot) -> Vec<Step> {
        let (mut joins, mut moves, mut joined) = (Vec::new(), Vec::new(), BTreeMap::new());
        for (instance, endpoint) in set.callees(self.schemes) {
            let id = instance.key().id;
            let join = || Step::Join(instance.clone(), endpoint.clone());
            match self.joined.remove(&id) {
                None => joins.push(join()),
                Some(before) if before == *endpoint => {}
                Some(_) => moves.extend([Step::Leave(id.clone()), join()]),
            }
            joined.insert(id, endpoint.clone());
        }
        let gone = std::mem::replace(&mut self.joined, joined).into_keys().map(Step::Leave);
        joins.into_iter().chain(moves).chain(gone).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(id: &str, endpoint: &str) -> crate::InstanceBuilder {
        Instance::builder("orders").id(id).endpoint(endpoint)
    }

    fn set(instances: impl IntoIterator<Item = crate::InstanceBuilder>) -> Snapshot {
        let mut set = Snapshot::loading("orders".into());
        for instance in instances {
            set.instances.insert(Arc::new(instance.build().unwrap()));
        }
        set
    }

    fn update(roster: &mut Roster, set: &Snapshot) -> Vec<String> {
        let text = |step| match step {
            Step::Join(instance, endpoint) => format!("+{} {endpoint}", instance.id()),
            Step::Leave(id) => format!("-{id}"),
        };
        roster.update(set).into_iter().map(text).collect()
    }

    #[test]
    fn a_roster_follows_the_set_step_by_step() {
        let mut roster = Roster::new(&["grpc", "tcp"]);
        let (a, b) = (instance("a", "tcp://10.0.0.1:1"), instance("b", "tcp://10.0.0.2:1"));
        let joins = ["+a tcp://10.0.0.1:1", "+b tcp://10.0.0.2:1"];
        assert_eq!(update(&mut roster, &set([a.clone(), b.clone()])), joins);
        // Another weight is nothing to whoever knows none.
        assert!(update(&mut roster, &set([a.clone().weight(7), b.clone()])).is_empty());
        // A newcomer before those who leave, and a move between them.
        let moved = instance("b", "tcp://10.0.0.3:1").endpoint("http://10.0.0.3:2");
        let steps = update(&mut roster, &set([moved.clone(), instance("c", "grpc://10.0.0.4:1")]));
        assert_eq!(steps, ["+c grpc://10.0.0.4:1", "-b", "+b tcp://10.0.0.3:1", "-a"]);
        // An endpoint under a scheme that comes first is another address.
        assert_eq!(
            update(&mut roster, &set([moved.endpoint("grpc://10.0.0.3:3")])),
            ["-b", "+b grpc://10.0.0.3:3", "-c"]
        );
        assert_eq!(update(&mut roster, &set([])), ["-b"]);
    }

    #[test]
    fn r09_the_draining_are_called_only_if_nobody_else_is_there() {
        let mut roster = Roster::new(&["tcp"]);
        let (a, b) = (instance("a", "tcp://10.0.0.1:1"), instance("b", "tcp://10.0.0.2:1"));
        let (idle, foreign) = (instance("c", "tcp://10.0.0.3:1").weight(0), instance("d", "udp://10.0.0.4:1"));
        let others = [idle, foreign];
        let with = |a: &crate::InstanceBuilder, b: &crate::InstanceBuilder| {
            set([a.clone(), b.clone()].into_iter().chain(others.clone()))
        };
        let drained = |one: &crate::InstanceBuilder| one.clone().state(State::Draining);
        update(&mut roster, &with(&a, &b));
        assert_eq!(update(&mut roster, &with(&drained(&a), &b)), ["-a"]);
        assert_eq!(update(&mut roster, &with(&drained(&a), &drained(&b))), ["+a tcp://10.0.0.1:1"]);
        assert_eq!(update(&mut roster, &with(&a, &drained(&b))), ["-b"]);
    }
}
