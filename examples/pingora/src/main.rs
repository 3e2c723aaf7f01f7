//! Prints whom pingora selects: `cargo run -p discovery-pingora -- REGISTRY_URL SERVICE [COUNT]`, with `--features etcd` and the like for
//! registries other than `memory:` and `static:`.
#![allow(clippy::print_stdout, reason = "an example talks to a person")]

mod discovered;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use discovery_kit::Instance;
use pingora_load_balancing::{LoadBalancer, selection::RoundRobin};

use discovered::{Discovered, follow};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let registry = arguments.next().unwrap_or_else(|| "static:///10.0.0.5:9000,10.0.0.6:9000".to_owned());
    let service = arguments.next().unwrap_or_else(|| "web".to_owned());
    let count: usize = arguments.next().map_or(Ok(4), |text| text.parse())?;

    let registry = discovery_kit::connect(&registry)?;
    let balancer: Arc<LoadBalancer<RoundRobin>> = Arc::new(Discovered::balancer(registry.watch(&service)));
    balancer.update().await.map_err(|error| error.to_string())?;
    let followed = balancer.clone();
    let watch = registry.watch(&service);
    tokio::spawn(async move { follow(watch, &followed).await });
    for _ in 0..count {
        // A proxy does this in `upstream_peer`, and makes an `HttpPeer` of the backend.
        let backend = balancer.select(b"", 256).ok_or_else(|| format!("no instance of {service:?} is registered"))?;
        let instance = backend.ext.get::<Arc<Instance>>().ok_or("a backend without an instance")?;
        println!("{} at {}", instance.id(), backend.addr);
    }
    Ok(())
}
