//! A greeter that registers itself: `cargo run --example register -- REGISTRY_URL NAME [LISTEN]`.
//!
//! It binds, registers what was bound, and on SIGTERM drains, deregisters and stops.

use discovery_greeter::Named;
use discovery_tonic::ServiceServer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let mut arguments = std::env::args().skip(1);
    let registry = arguments.next().unwrap_or_else(|| "memory:".to_owned());
    let name = arguments.next().unwrap_or_else(|| "greeter-1".to_owned());
    let listen = arguments.next().unwrap_or_else(|| "127.0.0.1:0".to_owned());

    let registry = discovery_kit::connect(&registry)?;
    let server = ServiceServer::bind(&listen).await?.instance(|instance| instance.version("1.0"));
    #[allow(clippy::print_stdout, reason = "the caller reads the address")]
    {
        println!("{}", server.local_addr());
    }
    server.serve(registry, "greeter", Named::routes(name)).await?;
    Ok(())
}
