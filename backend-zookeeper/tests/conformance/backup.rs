//! A server that is put back to what it held before.

use discovery_harness::{ZooKeeperProgram, cases};

use crate::fixture::ZOOKEEPER;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r07_an_older_record_that_a_backup_brought_back_is_written_anew() {
    cases::an_older_record_that_a_backup_brought_back_is_written_anew::<ZooKeeperProgram>(ZOOKEEPER).await;
}
