//! The harness keeps its own promises.

mod availability;
mod etcd;
mod network;
mod node;
mod poll;
mod port;
mod process;
mod proxy_cut;
mod proxy_hold;
mod proxy_pass;
mod redis;
mod zookeeper;
