//! Instances in a registry in memory, and balancers over them.

use std::sync::Arc;
use std::time::Duration;

use discovery_core::memory::MemoryStore;
use discovery_core::picker::{
    LeastRequests, PeakEwma, PowerOfTwo, Random, RoundRobin, WeightedRandom, WeightedRoundRobin,
};
use discovery_core::{Backend, Balancer, BalancerOptions, Instance, KeySpace, PickerFactory, encode};

use crate::Result;

const SERVICE: &str = "orders";

/// A picker's name and how to make one.
pub(crate) type Named = (&'static str, fn() -> Box<dyn PickerFactory>);

/// Every picker there is. A new one takes part in everything that is measured for all as soon as it stands here.
pub(crate) const PICKERS: [Named; 7] = [
    ("random", || Box::new(Random)),
    ("round_robin", || Box::new(RoundRobin::new())),
    ("weighted_round_robin", || Box::new(WeightedRoundRobin::new())),
    ("weighted_random", || Box::new(WeightedRandom)),
    ("least_requests", || Box::new(LeastRequests)),
    ("p2c", || Box::new(PowerOfTwo)),
    ("ewma", || Box::new(PeakEwma)),
];

/// Instances of one service.
pub(crate) struct Fleet {
    store: MemoryStore,
    backend: Arc<dyn Backend>,
    space: KeySpace,
    size: usize,
}

impl Fleet {
    /// Instances with these weights. Their ids are their places.
    pub(crate) fn new(weights: impl IntoIterator<Item = u32>) -> Result<Self> {
        let store = MemoryStore::new();
        let backend = store.connect();
        let mut fleet = Self { store, backend, space: KeySpace::new(KeySpace::DEFAULT_PREFIX)?, size: 0 };
        for weight in weights {
            fleet.put(fleet.size, weight, 0)?;
            fleet.size += 1;
        }
        Ok(fleet)
    }

    /// Writes the record of one.
    pub(crate) fn put(&self, id: usize, weight: u32, version: usize) -> Result<()> {
        let instance = instance(id, weight, version)?;
        self.store.put_raw(&self.space.key(&instance.key()), &encode(&instance));
        Ok(())
    }

    /// Deletes the record of one.
    pub(crate) fn remove(&self, id: usize) -> Result<()> {
        self.store.delete_raw(&self.space.key(&instance(id, 1, 0)?.key()));
        Ok(())
    }

    /// A balancer that knows all of them.
    pub(crate) async fn balancer(&self, factory: impl PickerFactory, options: BalancerOptions) -> Result<Balancer> {
        let watch = self.backend.watch(SERVICE);
        watch.ready(Duration::from_secs(10)).await?;
        let balancer = Balancer::with_options(watch, factory, options);
        match balancer.members().len() {
            known if known == self.size => Ok(balancer),
            known => Err(format!("{known} of {} instances are known", self.size).into()),
        }
    }
}

/// Each has an address of its own, since rings are made of addresses.
fn instance(id: usize, weight: u32, version: usize) -> Result<Instance> {
    let endpoint = format!("grpc://10.0.{}.{}:9000", id / 256, id % 256);
    let builder = Instance::builder(SERVICE).id(format!("{id:05}")).endpoint(&endpoint).weight(weight);
    Ok(builder.version(version.to_string()).build()?)
}
