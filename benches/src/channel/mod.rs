//! What going through us costs: throughput and latency over one hard-coded channel or client, and over tonic's own balancing.
//!
//! Servers are processes of their own. Everybody has the same number of calls open, in turn for some time each, round by round.

mod bare;
mod http;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use discovery_core::picker::RoundRobin;
use discovery_greeter::{GreeterClient, HelloRequest};
use discovery_reqwest::Client;
use tonic::transport::{Channel, Endpoint};

use crate::Result;
use crate::deploy::Server;
use crate::measure::{ROUNDS, WARM_UP, print};

pub(crate) use http::serve;

const SERVERS: usize = 3;
/// Calls that are open at once.
const OPEN: usize = 64;
/// How long each runs in a round.
const SLICE: Duration = Duration::from_millis(400);

type Call = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<()>> + Send>> + Send + Sync>;

/// One of those that are compared.
struct Contestant {
    name: &'static str,
    call: Call,
    /// Calls a second and the 99th percentile in seconds, round by round.
    rates: Vec<f64>,
    p99: Vec<f64>,
}

/// Compares all, or looks at those that are named alone.
pub(crate) async fn run(names: &[&str]) -> Result<()> {
    let servers: Vec<_> = (0..SERVERS).map(|n| Server::start(&format!("s{n}"), "memory:")).collect::<Result<_>>()?;
    let mut addresses = Vec::new();
    for server in &servers {
        addresses.push(server.address().await?);
    }
    let web = Server::start_http()?;
    let site = web.address().await?;

    let list = |addresses: &[String]| discovery_kit::connect(&format!("static:///{}", addresses.join(",")));
    let direct = Channel::from_shared(format!("http://{}", addresses[0]))?.connect().await?;
    let ours_one = discovery_tonic::Channel::new(list(&addresses[..1])?.watch("greeter"), RoundRobin::new());
    let endpoints: Result<Vec<_>, _> = addresses.iter().map(|a| Endpoint::from_shared(format!("http://{a}"))).collect();
    let balance = Channel::balance_list(endpoints?.into_iter());
    let ours_all = discovery_tonic::Channel::new(list(&addresses)?.watch("greeter"), RoundRobin::new());
    let plain = reqwest::Client::new();
    let ours_http = Client::new(list(&[format!("http://{site}")])?)?;

    let mut contestants = vec![
        of("direct", grpc(direct)),
        of("bare", grpc(bare::Bare::connect(&addresses[0]).await?)),
        of("tonic", grpc(ours_one)),
        of("balance", grpc(balance)),
        of("tonic_all", grpc(ours_all)),
        of("reqwest_direct", {
            let url = format!("http://{site}/");
            web_call(move || plain.get(&url).send())
        }),
        of("reqwest_bare", {
            let (url, bare) =
                (format!("http://{site}/"), reqwest_middleware::ClientBuilder::new(reqwest::Client::new()));
            let bare = bare.with(http::Pass).build();
            web_call(move || bare.get(&url).send())
        }),
        of("reqwest", web_call(move || ours_http.get("http://web/").send())),
    ];
    contestants.retain(|contestant| names.is_empty() || names.contains(&contestant.name));
    for round in 0..WARM_UP + ROUNDS {
        for contestant in &mut contestants {
            let (rate, p99) = slice(&contestant.call).await?;
            if round >= WARM_UP {
                contestant.rates.push(rate);
                contestant.p99.push(p99);
            }
        }
    }
    report(&contestants);
    Ok(())
}

fn report(contestants: &[Contestant]) {
    let of = |name: &str, what: fn(&Contestant) -> &Vec<f64>| {
        contestants.iter().find(|it| it.name == name).map(what).cloned().unwrap_or_default()
    };
    let ratio = |figure: &str, over: &str, under: &str, what: fn(&Contestant) -> &Vec<f64>| {
        let ratios: Vec<_> = of(over, what).iter().zip(of(under, what)).map(|(over, under)| over / under).collect();
        print(figure, &ratios, "ratio");
    };
    ratio("channel.tonic_over_direct", "tonic", "direct", |it| &it.rates);
    ratio("channel.tonic_p99_over_direct", "tonic", "direct", |it| &it.p99);
    ratio("channel.over_tonic_balance", "tonic_all", "balance", |it| &it.rates);
    ratio("channel.reqwest_over_direct", "reqwest", "reqwest_direct", |it| &it.rates);
    ratio("channel.reqwest_p99_over_direct", "reqwest", "reqwest_direct", |it| &it.p99);
    for contestant in contestants {
        print(&format!("channel.{}_rate", contestant.name), &contestant.rates, "calls/s");
    }
}

fn of(name: &'static str, call: Call) -> Contestant {
    Contestant { name, call, rates: Vec::new(), p99: Vec::new() }
}

fn grpc<T>(channel: T) -> Call
where
    T: tonic::client::GrpcService<tonic::body::Body> + Clone + Send + Sync + 'static,
    T::Future: Send,
    T::Error: Into<tonic::codegen::StdError>,
    T::ResponseBody: tonic::codegen::Body<Data = tonic::codegen::Bytes> + Send + 'static,
    <T::ResponseBody as tonic::codegen::Body>::Error: Into<tonic::codegen::StdError> + Send,
{
    let client = GreeterClient::new(channel);
    Arc::new(move || {
        let mut client = client.clone();
        Box::pin(async move {
            client.say_hello(HelloRequest { name: "you".to_owned(), count: 0 }).await?;
            Ok(())
        })
    })
}

/// A call that is over once its body was read.
fn web_call<F, E>(send: impl Fn() -> F + Send + Sync + 'static) -> Call
where
    F: Future<Output = Result<reqwest::Response, E>> + Send + 'static,
    E: std::error::Error + Send + Sync + 'static,
{
    Arc::new(move || {
        let sent = send();
        Box::pin(async move {
            sent.await?.error_for_status()?.bytes().await?;
            Ok(())
        })
    })
}

/// Calls for a while, and returns how many a second and the 99th percentile of their times in seconds.
async fn slice(call: &Call) -> Result<(f64, f64)> {
    let stop = Arc::<AtomicBool>::default();
    let begun = Instant::now();
    let tasks: Vec<_> = (0..OPEN)
        .map(|_| {
            let (call, stop) = (call.clone(), stop.clone());
            tokio::spawn(async move {
                let mut took = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    call().await?;
                    took.push(begun.elapsed().as_secs_f64());
                }
                Ok::<_, crate::Error>(took)
            })
        })
        .collect();
    tokio::time::sleep(SLICE).await;
    stop.store(true, Ordering::Relaxed);
    let mut took = Vec::new();
    for task in tasks {
        took.extend(task.await??);
    }
    let seconds = begun.elapsed().as_secs_f64();
    took.sort_by(f64::total_cmp);
    let p99 = took.get(took.len() * 99 / 100).copied().unwrap_or(f64::NAN);
    Ok((took.len() as f64 / seconds, p99))
}
