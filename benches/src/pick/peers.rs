//! What others pick with, as their users have it: pingora's round robin, tower's power of two choices and what tonic puts around it, and
//! volo's weighted random.
//!
//! Where a peer's pick ends with a call, the service behind it answers at once, so that nothing but the picking takes time.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use pingora_load_balancing::LoadBalancer;
use tokio::runtime::Handle;
use tower::balance::p2c::Balance;
use tower::buffer::Buffer;
use tower::discover::ServiceList;
use tower::load::{CompleteOnResponse, PeakEwmaDiscover, PendingRequestsDiscover};
use tower::{Service, ServiceExt};
use volo::context::Endpoint;
use volo::discovery::{Instance, WeightedStaticDiscover};
use volo::loadbalance::LoadBalance;
use volo::loadbalance::random::WeightedRandomBalance;

use super::INSTANCES;
use crate::Result;
use crate::measure::Contest;

/// How many requests tonic's channel keeps waiting by default.
const BUFFER: usize = 1024;

pub(super) fn enter(contest: &mut Contest<'_>) -> Result<()> {
    let pingora = LoadBalancer::<pingora_load_balancing::selection::RoundRobin>::try_from_iter(addresses())?;
    if pingora.select(b"", INSTANCES).is_none() {
        return Err("pingora picks nobody".into());
    }
    contest.add("pingora_rr", move |times| {
        for _ in 0..times {
            black_box(pingora.select(b"", INSTANCES));
        }
    });
    let mut pending = Balance::new(pending());
    contest.add("tower_p2c", move |times| calls(&mut pending, times));
    // Tonic's own defaults do not matter here, as all answers are as fast.
    let (rtt, decay) = (Duration::from_millis(100), Duration::from_secs(10));
    let services = ServiceList::new::<()>(services());
    let mut ewma = Balance::new(PeakEwmaDiscover::new::<()>(services, rtt, decay, CompleteOnResponse::default()));
    contest.add("tower_ewma", move |times| calls(&mut ewma, times));
    let buffer = Buffer::new(Balance::new(self::pending()), BUFFER);
    let (handle, from_main) = (Handle::current(), buffer.clone());
    // In a task, the buffer's worker runs on the same thread as soon as the caller waits for it.
    contest.add_timed("tower_buffer", move |times| {
        handle.block_on(handle.spawn(buffered(buffer.clone(), times))).unwrap_or_default()
    });
    // In `main`, as in every `block_on`, each request wakes the worker's thread and is woken by it.
    let handle = Handle::current();
    contest.add_timed("tower_buffer_in_main", move |times| handle.block_on(buffered(from_main.clone(), times)));
    volo(contest)
}

fn addresses() -> impl Iterator<Item = SocketAddr> {
    (1..).map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))).take(INSTANCES)
}

/// A service that is always ready and answers at once.
#[derive(Debug, Clone, Copy)]
struct Immediate;

impl Service<()> for Immediate {
    type Response = ();
    type Error = Infallible;
    type Future = Ready<std::result::Result<(), Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::result::Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, (): ()) -> Self::Future {
        ready(Ok(()))
    }
}

fn services() -> Vec<Immediate> {
    vec![Immediate; INSTANCES]
}

fn pending() -> PendingRequestsDiscover<ServiceList<Vec<Immediate>>> {
    PendingRequestsDiscover::new::<()>(ServiceList::new::<()>(services()), CompleteOnResponse::default())
}

/// Calls without a runtime around it, which would only add to the time.
fn calls<S: Service<()>>(service: &mut S, times: usize) {
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..times {
        assert!(service.poll_ready(&mut context).is_ready(), "all services are ready");
        let answer = pin!(service.call(()));
        assert!(answer.poll(&mut context).is_ready(), "all services answer at once");
    }
}

async fn buffered<S>(mut service: S, times: usize) -> Duration
where
    S: Service<(), Response = ()>,
{
    let begun = Instant::now();
    for _ in 0..times {
        if let Ok(ready) = service.ready().await {
            black_box(ready.call(()).await.is_ok());
        }
    }
    begun.elapsed()
}

fn volo(contest: &mut Contest<'_>) -> Result<()> {
    let instances = addresses().zip(1..).map(|(address, weight)| {
        Arc::new(Instance { address: address.into(), weight, tags: std::collections::HashMap::default() })
    });
    let discover = WeightedStaticDiscover::new(instances.collect());
    let balance = WeightedRandomBalance::with_discover(&discover);
    let endpoint = Endpoint::new("orders".into());
    let pick = move || balance.get_picker(&endpoint, &discover).now_or_never()?.ok()?.next();
    if pick().is_none() {
        return Err("volo picks nobody".into());
    }
    contest.add("volo_random", move |times| {
        for _ in 0..times {
            black_box(pick());
        }
    });
    Ok(())
}
