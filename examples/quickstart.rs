//! Three servers, one client: `cargo run --example quickstart`, or on a real registry
//! `cargo run --features etcd --example quickstart -- --registry etcd://127.0.0.1:2379 [--processes]`.
#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use discovery_greeter::{GreeterClient, HelloRequest, Named};
use discovery_kit::{Backend, picker::RoundRobin};
use discovery_tonic::{Channel, RunningServer, ServiceServer};
use std::{collections::BTreeMap, io::Read, process::Stdio, sync::Arc, time::Duration};
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
        command.args(["--registry", url, "--serve", name, listen]).stdin(Stdio::piped()).stdout(Stdio::piped());
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

    /// Ends it properly: drain, deregister, stop. Dropping it instead kills it.
    async fn end(self) -> Result<()> {
        match self {
            Self::Here(server) => server.shutdown().await?,
            Self::Process(mut child, _) => _ = child.wait().await?, // Closes its input first.
        }
        Ok(())
    }
}

/// Calls 300 times once `servers` of them are connected, and prints who answered how often.
async fn count(channel: &Channel, phase: &str, servers: usize) -> Result<()> {
    let connected = async {
        while [channel.connected(), channel.sharing()] != [servers; 2] {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), connected).await;
    waited.map_err(|_| format!("{phase}: {} of {servers} servers connected", channel.connected()))?;
    let mut client = GreeterClient::new(channel.clone());
    let mut shares = BTreeMap::from(["one", "two", "three"].map(|name| (name.to_owned(), 0)));
    for _ in 0..300 {
        let reply = client.say_hello(HelloRequest { name: "you".into(), count: 0 }).await?.into_inner();
        *shares.entry(reply.server).or_insert(0) += 1;
    }
    println!("{phase:<14}{:>8}{:>8}{:>8}", shares["one"], shares["two"], shares["three"]);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let after = |flag: &str| arguments.iter().position(|a| a == flag).and_then(|at| arguments.get(at + 1..));
    let url = after("--registry").and_then(|rest| rest.first().cloned()).unwrap_or_else(|| "memory:".to_owned());
    let registry = discovery_kit::connect(&url)?;
    if let Some([name, listen]) = after("--serve").and_then(|rest| rest.get(..2)) {
        let server = ServiceServer::bind(listen).await?.with_grace(Duration::from_millis(200));
        println!("{}", server.local_addr());
        let (gone, parent_is_gone) = tokio::sync::oneshot::channel::<()>();
        std::thread::spawn(move || _ = (std::io::stdin().read(&mut [0]), gone)); // It does not keep the process.
        let end = async { _ = parent_is_gone.await };
        return Ok(server.serve_until(registry, "greeter", Named::routes(name), end).await?);
    }
    let process_of = after("--processes").map(|_| url.as_str());
    if arguments.len() != 2 * usize::from(after("--registry").is_some()) + usize::from(process_of.is_some()) {
        return Err("known are: --registry URL, --processes (with a registry that several processes reach)".into());
    }
    let start = async |name, listen: &str| Server::start(&registry, process_of, name, listen).await;
    let any = "127.0.0.1:0";
    let (one, two, three) = tokio::try_join!(start("one", any), start("two", any), start("three", any))?;
    let channel = Channel::new(registry.watch("greeter"), RoundRobin::new());
    println!("{:<14}{:>8}{:>8}{:>8}", "300 calls", "one", "two", "three");
    count(&channel, "three servers", 3).await?;
    let address = two.address();
    drop(two);
    count(&channel, "two is killed", 2).await?;
    let two = start("two", &address).await?;
    count(&channel, "two is back", 3).await?;
    let (one, two, three) = tokio::join!(one.end(), two.end(), three.end());
    one.and(two).and(three).and(registry.close(Duration::from_secs(5)).await.map_err(Into::into))
}
