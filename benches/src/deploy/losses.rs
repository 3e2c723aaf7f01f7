//! One of the servers killed, and one stopped.

use std::time::{Duration, Instant};

use discovery_core::Outcome;
use discovery_core::attempts::RetryPolicy;
use discovery_tonic::{Channel, Retries};

use super::server::Server;
use super::{RATE, SERVERS, Scene};
use crate::Result;
use crate::calls::Load;

/// Hellos may be said twice.
fn retries() -> Retries {
    Retries::new(RetryPolicy::default().with_attempts(3))
}

/// How many requests ended badly at a server, by the client's count.
fn failures(channel: &Channel, name: &str) -> u64 {
    let members = channel.balancer().members();
    let member = members.iter().find(|member| member.instance().id() == name);
    member.map_or(0, |member| member.count(Outcome::Failure) + member.count(Outcome::Unreachable))
}

pub(super) async fn kill(scene: &mut Scene) -> Result<()> {
    let channel = scene.channel().with_retries(retries()).build();
    scene.settled(&channel, SERVERS).await?;
    let (load, begun) = (Load::start(&channel, RATE), Instant::now());
    tokio::time::sleep(Duration::from_secs(2)).await;
    let name = scene.servers[0].name().to_owned();
    scene.servers[0].process().kill()?;
    // Its connection is closed by then, and whatever was on it has failed.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let lost = failures(&channel, &name);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let later = failures(&channel, &name) - lost;
    tokio::time::sleep(Duration::from_secs(4)).await;
    load.end(begun).await?.print(&scene.figure("kill"));
    scene.print("kill_lost_in_flight", lost, "attempts");
    scene.print("kill_attempts_after", later, "attempts");
    scene.servers[0] = Server::start(&name, &scene.url)?;
    Ok(())
}

pub(super) async fn stop(scene: &mut Scene) -> Result<()> {
    let second = Duration::from_secs(1);
    let channel = scene.channel().with_retries(retries()).with_keepalive(second, second).build();
    scene.settled(&channel, SERVERS).await?;
    let (load, begun) = (Load::start(&channel, RATE), Instant::now());
    tokio::time::sleep(second * 2).await;
    let frozen = Instant::now();
    scene.servers[1].process().freeze()?;
    while channel.connected() == SERVERS {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    scene.print("stop_noticed", format!("{:.2}", frozen.elapsed().as_secs_f64()), "s");
    tokio::time::sleep(second * 4).await;
    scene.servers[1].process().thaw()?;
    scene.settled(&channel, SERVERS).await?;
    let report = load.end(begun).await?;
    report.print(&scene.figure("stop"));
    Ok(())
}
