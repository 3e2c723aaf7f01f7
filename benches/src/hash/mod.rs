//! Consistent hashing: which keys move, how even the shares are, and what a lookup and a change cost, against pingora's ketama ring.

mod lookup;
mod moving;
#[cfg(feature = "peers")]
mod peers;
mod share;
mod update;

use discovery_core::picker::ConsistentHash;
use discovery_core::{BalancerOptions, Member};

use crate::Result;
use crate::fleet::Fleet;
use crate::measure::{Contest, Times};

/// The size of the service.
const INSTANCES: usize = 1_000;

pub(crate) async fn run() -> Result<()> {
    moving::run().await?;
    share::run().await?;
    let mut contest = Contest::default();
    lookup::enter(&mut contest).await?;
    #[cfg(feature = "peers")]
    peers::enter_lookups(&mut contest)?;
    print_lookups(&measured(contest));
    let mut contest = Contest::default();
    update::enter(&mut contest).await?;
    #[cfg(feature = "peers")]
    peers::enter_rebuild(&mut contest)?;
    print_updates(&measured(contest));
    Ok(())
}

/// Counting what the peers allocate would slow them.
fn measured(contest: Contest<'_>) -> Times {
    let mut times = Times::default();
    tokio::task::block_in_place(|| allocation_counter::opt_out(|| times = contest.run()));
    times
}

fn print_lookups(times: &Times) {
    for (figure, way) in [("", "few"), ("_cold", "new"), ("_alone", "few_alone"), ("_alone_cold", "new_alone")] {
        let figure = format!("hash.pingora_ketama_over_lookup{figure}");
        times.print_ratio(&figure, &format!("pingora_ketama_{way}"), &format!("lookup_{way}"));
    }
    for (figure, way) in [("", "few"), ("_cold", "new")] {
        let figure = format!("hash.pingora_select_over_pick{figure}");
        times.print_ratio(&figure, &format!("pingora_select_{way}"), &format!("pick_{way}"));
    }
    print_all(times);
}

fn print_updates(times: &Times) {
    times.print_ratio("hash.ketama_rebuild_over_update", "pingora_ketama_rebuild", "update");
    times.print_ratio("hash.ketama_rebuild_over_leave", "pingora_ketama_rebuild", "leave");
    times.print_ratio("hash.ketama_rebuild_over_join", "pingora_ketama_rebuild", "join");
    times.print_ratio("hash.ketama_rebuild_over_first_updates", "pingora_ketama_rebuild", "first_updates");
    times.print_ratio("hash.own_ketama_rebuild_over_update", "own_ketama_rebuild", "update");
    print_all(times);
}

fn print_all(times: &Times) {
    for name in times.names() {
        times.print(&format!("hash.{name}"), name);
    }
}

/// So many members, as a balancer shows them to its picker.
async fn members(count: usize) -> Result<Vec<Member>> {
    let fleet = Fleet::new(vec![1; count])?;
    Ok(fleet.balancer(ConsistentHash::new(), BalancerOptions::default()).await?.members())
}
