//! Three servers, one client: `cargo run --example quickstart`, or on a real registry
//! `cargo run --features etcd --example quickstart -- --registry etcd://127.0.0.1:2379 [--processes]`.
#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use discovery_greeter::{GreeterClient, HelloRequest, Named};
use discovery_kit::{Backend, picker::RoundRobin};
use discovery_tonic::{Channel, RunningServer, ServiceServer};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A greeter, in this process or in one of its own.
enum Server {
    Here(RunningServer),
    Process(Child, String),
}

impl Server {
    async fn start(registry: &Arc<dyn Backend>, process_of: Option<&str>, name: &str, listen: &str) -> Result<Self> {
        let Some(url) = process_of else {
            let server = ServiceServer::bind(listen).await?.with_grace(Duration::from_millis(200));
            return Ok(Self::Here(server.start(registry.clone(), "greeter", Named::routes(name)).await?));
        };
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--registry", url, "--serve", name, listen]).stdout(std::process::Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn()?;
        let mut address = String::new();
        BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut address).await?;
        Ok(Self::Process(child, address.trim().to_owned()))
    }

    fn address(&self) -> String {
        match self {
            Self::Here(server) => server.local_addr().to_string(),
            Self::Process(_, address) => address.clone(),
        }
    }

    async fn kill(self) -> Result<()> {
        match self {
            Self::Here(server) => drop(server),
            Self::Process(mut child, _) => child.kill().await?,
        }
        Ok(())
    }
}

/// Calls 300 times once `servers` of them are connected, and prints who answered how often.
async fn count(channel: &Channel, phase: &str, servers: usize) -> Result<()> {
    let connected = async {
        while channel.connected() != servers {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), connected).await?;
    let mut client = GreeterClient::new(channel.clone());
    let mut shares = BTreeMap::from(["greeter-1", "greeter-2", "greeter-3"].map(|name| (name.to_owned(), 0)));
    for _ in 0..300 {
        let reply = client.say_hello(HelloRequest { name: "you".into(), count: 0 }).await?.into_inner();
        *shares.entry(reply.server).or_insert(0) += 1;
    }
    let row: Vec<_> = shares.values().map(|share| format!("{share:>10}")).collect();
    println!("{phase:<24}{}", row.concat());
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let after = |flag: &str| arguments.iter().position(|a| a == flag).and_then(|at| arguments.get(at + 1..));
    let url = after("--registry").and_then(|rest| rest.first().cloned()).unwrap_or_else(|| "memory:".to_owned());
    let registry = discovery_kit::connect(&url)?;
    if let Some([name, listen]) = after("--serve").and_then(|rest| rest.get(..2)) {
        let running = ServiceServer::bind(listen).await?.start(registry, "greeter", Named::routes(name)).await?;
        println!("{}", running.local_addr());
        return std::future::pending().await; // Until it is killed, or drained by `register.rs`' way.
    }
    let process_of = arguments.iter().any(|a| a == "--processes").then_some(url.as_str());
    let start = |name: &'static str, listen: String| {
        let registry = &registry;
        async move { Server::start(registry, process_of, name, &listen).await }
    };
    let any = || "127.0.0.1:0".to_owned();
    let (one, two, three) =
        (start("greeter-1", any()).await?, start("greeter-2", any()).await?, start("greeter-3", any()).await?);
    let channel = Channel::new(registry.watch("greeter"), RoundRobin::new());
    println!("{:<24}{:>10}{:>10}{:>10}", "300 calls on", "greeter-1", "greeter-2", "greeter-3");
    count(&channel, "three servers", 3).await?;
    let address = two.address();
    two.kill().await?;
    count(&channel, "greeter-2 killed", 2).await?;
    let two = start("greeter-2", address).await?;
    count(&channel, "greeter-2 back", 3).await?;
    drop((one, two, three));
    Ok(registry.close(Duration::from_secs(5)).await?)
}
