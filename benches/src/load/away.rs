//! The store away for a minute, and its return (L1, L2).

use std::time::{Duration, Instant};

use super::knocks::Knocks;
use super::lines::{most_repeated, written};
use super::{Cost, LIMIT, REGISTRATIONS, Scene, WATCHES, all_hold};
use crate::Result;
use crate::meter::Meter;
use crate::process::Process;

const AWAY: Duration = Duration::from_secs(60);
/// What comes behind the first answers, such as what is written twice, comes within that.
const SETTLE: Duration = Duration::from_secs(3);

/// What the port does while the server is away.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Port {
    /// A connection is taken and reset, as by a balancer before the server.
    Answers,
    /// Nothing listens.
    Refuses,
}

pub(super) async fn run(scene: &mut Scene, process: &Process, first: &Cost, port: Port) -> Result<()> {
    let name = |figure: &str| format!("{}_{figure}", if port == Port::Answers { "away" } else { "refused" });
    let connections = scene.proxy.open();
    let printed = process.printed()?.len();
    let knocks = match port {
        Port::Answers => None,
        Port::Refuses => Knocks::listen(scene.proxy.socket_address()),
    };
    if port == Port::Answers {
        scene.proxy.cut_counting().await?;
    } else {
        scene.proxy.cut().await;
    }
    scene.store.kill()?;
    let (connects, cpu, begun) = (scene.proxy.connects(), process.cpu()?, Instant::now());
    tokio::time::sleep(AWAY).await;
    scene.print_share(&name("cpu"), process.cpu()? - cpu, begun.elapsed());
    let attempts = match (port, knocks) {
        (Port::Answers, _) => Some(scene.proxy.connects() - connects),
        (Port::Refuses, Some(knocks)) => Some(knocks.count()),
        (Port::Refuses, None) => None,
    };
    match attempts {
        Some(attempts) => {
            let each = attempts as f64 / connections.max(1) as f64;
            scene.print(&name("attempts"), attempts, "attempts a minute");
            scene.print(
                &name("attempts_each"),
                format!("{each:.1}"),
                "attempts a minute and connection, must be at most 30",
            );
        }
        None => eprintln!("attempts at a port that refuses are not counted: that needs the right to see packets"),
    }
    let log = process.printed()?;
    let lines = written(log.get(printed..).unwrap_or_default());
    let (repeated, line) = most_repeated(&lines, Duration::from_secs(5));
    scene.print(&name("lines"), lines.len(), "lines in a minute");
    scene.print(&name("lines_repeated"), repeated, "times the same line in 5 s, must be at most 2: repeated once");
    if repeated > 1 {
        eprintln!("{repeated} × {line}");
    }
    back(scene, process, first, &name).await
}

async fn back(scene: &mut Scene, process: &Process, first: &Cost, name: &impl Fn(&str) -> String) -> Result<()> {
    scene.store.start_again().await?;
    let mut meter = Meter::of(&scene.store).await?;
    let (before, bytes, cpu, begun) = (meter.read().await?, scene.bytes(), process.cpu()?, Instant::now());
    scene.proxy.pass().await?;
    // The process has said that nothing is live, so this is news.
    process.says("holds", &all_hold(), LIMIT).await?;
    scene.print(&name("return"), format!("{:.1}", begun.elapsed().as_secs_f64()), "s until everything holds");
    // As far as a fresh process is counted, too.
    let asked = meter.read().await?.since(before);
    let (requests, bytes) = (asked.requests as f64, (scene.bytes() - bytes) as f64);
    tokio::time::sleep(SETTLE).await;
    let writes = meter.read().await?.since(before).writes;
    scene.print(&name("return_writes"), writes, &format!("writes, {REGISTRATIONS} are held"));
    scene.print(&name("return_requests"), asked.requests, &format!("requests, {WATCHES} sets are watched"));
    let unit = "of what a fresh process costs, must be at most 1.5";
    scene.print(&name("return_requests_over_first"), format!("{:.2}", requests / first.requests as f64), unit);
    scene.print(&name("return_bytes_over_first"), format!("{:.2}", bytes / first.bytes as f64), unit);
    scene.print(&name("return_cpu"), format!("{:.2}", (process.cpu()? - cpu).as_secs_f64()), "s of processor time");
    Ok(())
}
