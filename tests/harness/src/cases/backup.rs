//! A store that is put back to what it held before.

use std::time::Duration;

use discovery_core::conformance::eventually;

use super::{Subject, policy, register, settle};
use crate::{Program, Server};

/// Longer than the restarts of the server take, so that leases outlive them.
const TTL: Duration = Duration::from_secs(8);

/// A backup brings the lease back together with a record that was updated since: what was last updated is what stands again, for watchers
/// that were there all the time and for one that comes later.
pub async fn an_older_record_that_a_backup_brought_back_is_written_anew<P: Program>(subject: Subject) {
    if !Server::<P>::available().expect("the server, which CI requires") {
        return;
    }
    let server = Server::<P>::start().await.unwrap();
    let (writer, reader) = (subject.open(server.address(), policy(TTL)), subject.open(server.address(), policy(TTL)));
    let (updated, untouched) = (register(&writer, "pay", "a").await, register(&writer, "pay", "b").await);
    server.kill().unwrap();
    let backup = server.back_up().unwrap();
    server.start_again().await.unwrap();
    let limit = settle(TTL);
    eventually(limit, "the update", async || updated.update(|it| it.version("2")).await).await;
    server.kill().unwrap();
    server.start_from(&backup).await.unwrap();
    let late = subject.open(server.address(), policy(TTL));
    for watch in [reader.watch("pay"), late.watch("pay")] {
        eventually(limit, "the update to stand again", async || {
            let set = watch.latest().filter(|set| set.freshness().is_live());
            let versions = set.map(|set| ["a", "b"].map(|id| set.get(id).map(|it| it.version().map(str::to_owned))));
            if versions == Some([Some(Some("2".to_owned())), Some(None)]) {
                Ok(())
            } else {
                Err(format!("{versions:?}"))
            }
        })
        .await;
    }
    drop((updated, untouched));
}
