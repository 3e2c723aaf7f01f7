//! Pingora's ketama ring, as fast as its users can have it: the bare ring for a lookup, the load balancer's `select` for a whole pick, and
//! for a change what the load balancer builds anew whenever its set changes.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use pingora_ketama::{Bucket, Continuum};
use pingora_load_balancing::selection::BackendSelection;
use pingora_load_balancing::selection::consistent::KetamaHashing;
use pingora_load_balancing::{Backend, LoadBalancer};

use super::INSTANCES;
use super::lookup::enter_all;
use crate::Result;
use crate::measure::Contest;

pub(super) fn enter_lookups(contest: &mut Contest<'_>) -> Result<()> {
    let buckets: Vec<_> = addresses().map(|address| Bucket::new(address, 1)).collect();
    let ring = Arc::new(Continuum::new(&buckets));
    let names = ["pingora_ketama_few", "pingora_ketama_new", "pingora_ketama_few_alone", "pingora_ketama_new_alone"];
    enter_all(contest, names, move |key| Some(usize::from(ring.node(key)?.port())));
    let balancer = Arc::new(LoadBalancer::<KetamaHashing>::try_from_iter(addresses())?);
    enter_all(contest, ["pingora_select_few", "pingora_select_new"], move |key| {
        black_box(balancer.select(key, INSTANCES)?);
        None
    });
    Ok(())
}

pub(super) fn enter_rebuild(contest: &mut Contest<'_>) -> Result<()> {
    let whole = addresses().map(|address| Ok(Backend::new(&address.to_string())?)).collect::<Result<BTreeSet<_>>>()?;
    let mut rest = whole.clone();
    rest.pop_first();
    let (mut ring, mut leaves) = (KetamaHashing::build(&whole), false);
    contest.add("pingora_ketama_rebuild", move |times| {
        for _ in 0..times {
            leaves = !leaves;
            // The old ring serves until the new one is there.
            let next = KetamaHashing::build(if leaves { &rest } else { &whole });
            drop(black_box(std::mem::replace(&mut ring, next)));
        }
    });
    Ok(())
}

fn addresses() -> impl Iterator<Item = SocketAddr> {
    (1..).map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))).take(INSTANCES)
}
