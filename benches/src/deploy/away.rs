//! The registry away for a minute at full load.

use std::time::{Duration, Instant};

use super::server::Server;
use super::{RATE, SERVERS, Scene};
use crate::Result;
use crate::calls::Load;

const BEFORE: Duration = Duration::from_secs(15);
const AWAY: Duration = Duration::from_secs(60);
const JOINS_AFTER: Duration = Duration::from_secs(20);

pub(super) async fn run(scene: &mut Scene) -> Result<()> {
    let channel = scene.channel().build();
    scene.settled(&channel, SERVERS).await?;
    let load = Load::start(&channel, RATE);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let begun = Instant::now();
    tokio::time::sleep(BEFORE).await;
    let gone = Instant::now();
    scene.store.kill()?;
    tokio::time::sleep(JOINS_AFTER).await;
    scene.servers.push(Server::start("late", &scene.url)?);
    tokio::time::sleep(AWAY - JOINS_AFTER).await;
    let back = Instant::now();
    scene.store.start_again().await?;
    scene.settled(&channel, SERVERS + 1).await?;
    scene.print("away_joined", format!("{:.2}", back.elapsed().as_secs_f64()), "s after its return");
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (before, away) = (load.between(begun, gone), load.between(gone, back));
    before.print(&scene.figure("before"));
    away.print(&scene.figure("away"));
    scene.print("away_p99_over_before", format!("{:.3}", away.quantile(0.99) / before.quantile(0.99)), "ratio");
    load.end(begun).await?.print(&scene.figure("around"));
    Ok(())
}
