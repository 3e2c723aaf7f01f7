//! pingora's `ServiceDiscovery` over a watch.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use async_trait::async_trait;
use discovery_kit::{Instance, Watch};
use pingora_error::{Error, ErrorType, Result};
use pingora_load_balancing::discovery::ServiceDiscovery;
use pingora_load_balancing::selection::{BackendIter, BackendSelection};
use pingora_load_balancing::{Backend, Backends, LoadBalancer};

/// How long the first update waits for a set; later ones have one at once.
const FIRST_SET: Duration = Duration::from_secs(5);

/// The most that one instance weighs: pingora keeps that many slots for it.
const MOST_WEIGHT: u32 = 1_000;

/// The most backends that pingora takes: it panics at one more.
const MOST_BACKENDS: usize = u16::MAX as usize;

/// The instances of a watched service, as pingora wants them; each backend has its instance in `ext`.
///
/// Who is draining while others serve, or has the weight 0, is not among them. An outage of the registry changes nothing.
/// Host names are looked up at each update, and a name's addresses are backends of their own.
pub(crate) struct Discovered(Watch);

impl Discovered {
    /// A load balancer over a watched service. Let [`follow`] keep it up to date, or set its `update_frequency`.
    pub(crate) fn balancer<S>(watch: Watch) -> LoadBalancer<S>
    where
        S: BackendSelection<Iter: BackendIter> + 'static,
    {
        LoadBalancer::from_backends(Backends::new(Box::new(Self(watch))))
    }
}

#[async_trait]
impl ServiceDiscovery for Discovered {
    async fn discover(&self) -> Result<(BTreeSet<Backend>, HashMap<u64, bool>)> {
        // An error leaves pingora's backends as they are, where an empty set would remove them all.
        let set = self.0.ready(FIRST_SET).await;
        let set = set.map_err(|error| Error::because(ErrorType::InternalError, "no set to balance over", error))?;
        let callees = set.callees(&["http", "tcp"]);
        // Pingora gives an instance as many turns in a row as it weighs, so weights are made as small as their ratios allow.
        let weigh = |instance: &Instance| instance.weight().min(MOST_WEIGHT);
        let unit = callees.iter().map(|(instance, _)| weigh(instance)).fold(0, gcd).max(1);
        let mut backends = BTreeSet::new();
        for (instance, endpoint) in callees {
            let weight = (weigh(instance) / unit) as usize;
            match tokio::net::lookup_host((endpoint.host(), endpoint.port())).await {
                Ok(addresses) => {
                    for address in addresses {
                        let mut backend = Backend::new_with_weight(&address.to_string(), weight)?;
                        backend.ext.insert(instance.clone());
                        backends.insert(backend);
                    }
                }
                Err(error) => eprintln!("{} is left out: cannot look up {endpoint}: {error}", instance.id()),
            }
        }
        // Nobody is held back by name, so no backend has to be enabled.
        Ok((backends.into_iter().take(MOST_BACKENDS).collect(), HashMap::new()))
    }
}

/// The greatest common divisor, where 0 counts as nothing.
fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Updates a load balancer whenever its set changes, where pingora itself would ask every `update_frequency`. It ends with the registry.
pub(crate) async fn follow<S>(mut watch: Watch, balancer: &LoadBalancer<S>)
where
    S: BackendSelection<Iter: BackendIter> + 'static,
{
    while watch.changed().await.is_some() {
        if let Err(error) = balancer.update().await {
            eprintln!("the backends stay as they are: {error}");
        }
    }
}
