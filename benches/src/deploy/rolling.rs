//! All servers restarted, one after the other, without any retry.

use std::time::{Duration, Instant};

use super::{RATE, SERVERS, Scene};
use crate::Result;
use crate::calls::Load;

pub(super) async fn run(scene: &mut Scene) -> Result<()> {
    let channel = scene.channel().build();
    scene.settled(&channel, SERVERS).await?;
    let (load, begun) = (Load::start(&channel, RATE), Instant::now());
    tokio::time::sleep(Duration::from_secs(2)).await;
    for number in 0..SERVERS {
        scene.servers[number].restart().await?;
        scene.settled(&channel, SERVERS).await?;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    load.end(begun).await?.print(&scene.figure("rolling"));
    Ok(())
}
