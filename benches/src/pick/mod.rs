//! What a pick costs, with the report of its outcome: against one atomic addition, reads of the clock, and the crates of others.

mod allocations;
mod deviation;
mod ours;
#[cfg(feature = "peers")]
mod peers;
mod scaling;

use crate::Result;
use crate::measure::{Contest, Times};

/// The size of a service where a figure names none.
const INSTANCES: usize = 100;

pub(crate) async fn run() -> Result<()> {
    let mut contest = Contest::default();
    ours::enter(&mut contest).await?;
    #[cfg(feature = "peers")]
    peers::enter(&mut contest)?;
    // Outside of the runtime's tasks, where no budget of polls runs out. What the peers allocate is not counted, which would slow them.
    let mut times = Times::default();
    tokio::task::block_in_place(|| allocation_counter::opt_out(|| times = contest.run()));
    print(&times);
    deviation::run().await?;
    allocations::run().await?;
    scaling::run().await
}

fn print(times: &Times) {
    for size in ["n10", "n100", "n1000"] {
        times.print_ratio(&format!("pick.p2c_over_floor_{size}"), &format!("p2c_{size}"), "floor");
    }
    times.print_ratio("pick.bare_p2c_over_floor", "bare_p2c", "floor");
    times.print_ratio("pick.p2c_over_bare_p2c", "p2c_n100", "bare_p2c");
    times.print_ratio("pick.rr_over_bare_rr", "rr", "bare_rr");
    times.print_ratio("pick.pingora_rr_over_bare_rr", "pingora_rr", "bare_rr");
    times.print_ratio("pick.tower_p2c_over_bare_p2c", "tower_p2c", "bare_p2c");
    times.print_ratio("pick.volo_random_over_bare_p2c", "volo_random", "bare_p2c");
    times.print_ratio("pick.pingora_rr_over_rr", "pingora_rr", "rr");
    times.print_ratio("pick.tower_p2c_over_p2c", "tower_p2c", "p2c_n100");
    times.print_ratio("pick.tower_buffer_over_p2c", "tower_buffer", "p2c_n100");
    times.print_ratio("pick.tower_buffer_in_main_over_p2c", "tower_buffer_in_main", "p2c_n100");
    times.print_ratio("pick.volo_random_over_weighted_random", "volo_random", "weighted_random");
    times.print_ratio("pick.ewma_over_two_clock_reads", "ewma", "two_clock_reads");
    times.print_ratio("pick.ewma_all_timed_over_two_clock_reads", "ewma_all_timed", "two_clock_reads");
    times.print_ratio("pick.tower_ewma_over_ewma", "tower_ewma", "ewma");
    times.print_ratio("pick.swrr_over_rr", "swrr", "rr");
    for name in times.names() {
        times.print(&format!("pick.{name}"), name);
    }
}
