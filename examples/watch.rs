//! Prints who comes and goes: `cargo run --example watch -- REGISTRY_URL [SERVICE]`. Without a service it prints their names.
#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use discovery_kit::{Change, Freshness};

#[tokio::main]
async fn main() -> discovery_kit::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let registry = discovery_kit::connect(&arguments.next().unwrap_or_else(|| "static:///127.0.0.1:9000".to_owned()))?;

    let Some(service) = arguments.next() else {
        let mut watch = registry.watch_services();
        while let Some(services) = watch.changed().await {
            println!("services: {:?}", services.names());
        }
        return Ok(());
    };

    let mut watch = registry.watch(&service);
    if let Err(error) = watch.ready(std::time::Duration::from_secs(3)).await {
        println!("{error}; waiting for it");
    }
    let mut before = None;
    // A watch ends only when its registry is closed: an outage shows as a stale set.
    while let Some(now) = watch.changed().await {
        match now.freshness() {
            Freshness::Live => println!("{} live: {} instances", now.service(), now.len()),
            other => println!("{} not live: {:?}", now.service(), other.cause().map(ToString::to_string)),
        }
        match before.replace(now.clone()) {
            None => now.instances().iter().for_each(|instance| println!("  = {}", instance.id())),
            Some(before) => {
                for change in now.changes_since(&before) {
                    match change {
                        Change::Added(instance) => println!("  + {} at {:?}", instance.id(), instance.endpoints()),
                        Change::Removed(instance) => println!("  - {}", instance.id()),
                        Change::Modified(_, instance) => println!("  ~ {} {:?}", instance.id(), instance.state()),
                    }
                }
            }
        }
    }
    Ok(())
}
