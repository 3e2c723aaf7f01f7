//! Picks an instance and prints its address: `cargo run --example pick -- REGISTRY_URL SERVICE [COUNT]`.
#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use std::time::Duration;

use discovery_kit::picker::PowerOfTwo;
use discovery_kit::{Balancer, Context, Outcome};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let registry = arguments.next().unwrap_or_else(|| "static:///10.0.0.5:9000,10.0.0.6:9000".to_owned());
    let service = arguments.next().unwrap_or_else(|| "greeter".to_owned());
    let count: usize = arguments.next().map_or(Ok(1), |text| text.parse())?;

    let registry = discovery_kit::connect(&registry)?;
    let balancer = Balancer::new(registry.watch(&service), PowerOfTwo);
    for _ in 0..count {
        // Waits for an instance; the error says what is known, how old it is, and what the registry said last.
        let pick = balancer.pick_within(&Context::default(), Duration::from_secs(5)).await?;
        println!("{}", pick.instance().endpoints()[0]);
        pick.finish(Outcome::Success);
    }
    Ok(())
}
