//! F10: what a process costs while its registry is away. In a binary of its own, since it measures the process.

use discovery_harness::{
    EtcdProgram,
    cases::{self, Subject},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f10_a_minute_without_the_registry_costs_next_to_nothing() {
    let subject = Subject::new("etcd", discovery_etcd::connect, discovery_etcd::open);
    cases::a_minute_without_the_registry_costs_next_to_nothing::<EtcdProgram>(subject).await;
}
