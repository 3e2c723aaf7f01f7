//! The etcd backend on real servers: the conformance suite, and the field cases that name etcd.

mod fixture;

discovery_core::conformance!(fixture::EtcdFixture, #[tokio::test(flavor = "multi_thread", worker_threads = 2)]);
