//! A server of other people, in a process that can be stopped: etcd speaks HTTP and gRPC health on one port.

use std::io;

use discovery_core::ErrorKind;
use discovery_harness::{Etcd, skip_unless_available};
use discovery_health::{GrpcCheck, HttpCheck, TcpCheck, Verdict};

use crate::stage::{Stage, verdict};

#[tokio::test]
async fn a_stopped_process_is_unhealthy_to_all_but_tcp() -> io::Result<()> {
    skip_unless_available!("etcd", "etcdctl");
    let etcd = Etcd::start().await?;
    let stage = Stage::set();
    let _a = stage.register("a", format!("tcp://{}", etcd.socket_address())).await;
    let asking = [stage.quick(HttpCheck::new("/health").unwrap()), stage.quick(GrpcCheck::default())];
    let tcp = stage.quick(TcpCheck::default());
    for checker in asking.iter().chain([&tcp]) {
        verdict(checker, "a", Verdict::Healthy).await;
    }
    etcd.freeze()?;
    for checker in &asking {
        let report = verdict(checker, "a", Verdict::Unhealthy).await;
        assert_eq!(report.last().unwrap().failure().unwrap().kind(), ErrorKind::DeadlineExceeded, "{report}");
    }
    assert_eq!(tcp.report("a").unwrap().verdict(), Verdict::Healthy, "the kernel accepts for it");
    etcd.thaw()?;
    for checker in &asking {
        verdict(checker, "a", Verdict::Healthy).await;
    }
    etcd.kill()?;
    for checker in asking.iter().chain([&tcp]) {
        verdict(checker, "a", Verdict::Unhealthy).await;
    }
    Ok(())
}
