//! How many requests of a client reach a server that is dead until nobody is sent there any more.
//!
//! The server is known to the registry and refuses connections, so a request that goes there ends as `Unreachable` after a moment. With a
//! balancer's default options that one is enough. Requests that are already under way by then cannot be saved; how many those are is
//! shown by clients that begin eight at the same moment.

use discovery_core::picker::{BoundedLoad, ConsistentHash};
use discovery_core::{Context, Outcome, Reader};

use super::simulation::{Time, balance};
use crate::Result;
use crate::fleet::{Named, PICKERS};
use crate::measure::print;

const CLIENTS: u64 = 9;
/// Requests that each client begins, so that every server would have its turn many times.
const REQUESTS: usize = 2_000;
const AT_ONCE: usize = 8;
const DEAD: &str = "00003";
/// How long a refusal and an answer take, in seconds.
const REFUSED: f64 = 0.001;
const ANSWERED: f64 = 0.02;

/// Pickers that go by keys, which the other figures leave out.
const BY_KEY: [Named; 2] = [
    ("consistent_hash", || Box::new(ConsistentHash::with_slots(1 << 16))),
    ("bounded_load", || Box::new(BoundedLoad::new(ConsistentHash::with_slots(1 << 16)))),
];

pub(super) async fn run() -> Result<()> {
    let (mut one_by_one, mut at_once) = (Vec::new(), Vec::new());
    for (name, factory) in PICKERS.into_iter().chain(BY_KEY) {
        for (figure, together, all) in
            [("ejection_attempts", 1, &mut one_by_one), ("ejection_attempts_at_once", AT_ONCE, &mut at_once)]
        {
            let mut attempts = Vec::new();
            for seed in 0..CLIENTS {
                let (reader, time) = balance(factory()).await?;
                attempts.push(client(reader, &time, together, seed)?);
            }
            print(&format!("tail.{figure}_{name}"), &attempts, "requests a client");
            all.extend(attempts);
        }
    }
    print("tail.ejection_attempts", &one_by_one, "requests a client");
    print("tail.ejection_attempts_at_once", &at_once, "requests a client");
    Ok(())
}

/// How many requests of a new client reach the dead one. Not async, as the pickers' random numbers are the thread's.
fn client(mut reader: Reader, time: &Time, together: usize, seed: u64) -> Result<f64> {
    fastrand::seed(seed);
    let (mut now, mut attempts) = (0.0, 0.0);
    for _ in 0..REQUESTS / together {
        time.set(now);
        let mut flights = Vec::new();
        for _ in 0..together {
            let key = fastrand::u64(..).to_le_bytes();
            flights.push(reader.pick(&Context::default().with_key(&key))?);
        }
        let (refused, answered): (Vec<_>, Vec<_>) = flights.into_iter().partition(|pick| pick.instance().id() == DEAD);
        attempts += refused.len() as f64;
        time.set(now + REFUSED);
        refused.into_iter().for_each(|pick| pick.finish(Outcome::Unreachable));
        now += ANSWERED;
        time.set(now);
        answered.into_iter().for_each(|pick| pick.finish(Outcome::Success));
    }
    Ok(attempts)
}
