//! Every example runs, and does what it says.

use crate::node::{Node, outcome, run};

/// The shares of each row of the quickstart's table.
pub(crate) fn shares(table: &str) -> Vec<Vec<u32>> {
    let numbers = |line: &str| line.split_whitespace().rev().take(3).map_while(|word| word.parse().ok()).collect();
    let rows = table.lines().map(numbers).filter(|row: &Vec<u32>| row.len() == 3);
    rows.map(|mut row: Vec<u32>| {
        row.reverse();
        row
    })
    .collect()
}

pub(crate) fn assert_quickstart(table: &str) {
    assert_eq!(shares(table), [[100, 100, 100], [150, 0, 150], [100, 100, 100]], "{table}");
}

#[tokio::test]
async fn quickstart_shows_equal_shares_and_survives_a_kill() {
    assert_quickstart(&run("quickstart", &[]).await);
}

#[tokio::test]
async fn custom_picker_takes_the_cheapest_by_turns() {
    let text = run("custom_picker", &[]).await;
    assert_eq!(text.lines().collect::<Vec<_>>(), ["10.0.0.2:9000", "10.0.0.3:9000", "10.0.0.2:9000", "10.0.0.3:9000"]);
}

#[tokio::test]
async fn custom_backend_follows_its_file() {
    assert_eq!(run("custom_backend", &[]).await, "2 instances\n1 instance\n");
}

#[tokio::test]
async fn pick_prints_an_address_of_the_list() {
    let text = run("pick", &["static:///10.0.0.5:9000,10.0.0.6:9000", "any", "20"]).await;
    assert_eq!(text.lines().count(), 20);
    assert!(text.lines().all(|line| line == "tcp://10.0.0.5:9000" || line == "tcp://10.0.0.6:9000"), "{text}");
}

#[tokio::test]
async fn watch_prints_who_is_there() {
    let mut watch = Node::start("watch", &["static:///10.0.0.5:9000", "orders"]);
    assert_eq!(watch.line().await, "orders live: 1 instances");
    assert_eq!(watch.line().await, "  = 10.0.0.5:9000");
    watch.kill().await;
}

#[tokio::test]
async fn register_serves_until_it_is_asked_to_end() {
    let mut server = Node::start("register", &["memory:", "greeter-1"]);
    let address = server.line().await;
    assert!(address.starts_with("127.0.0.1:") && !address.ends_with(":0"), "{address}");
    assert!(server.terminate().await.success());
}

#[tokio::test]
async fn compare_ends_with_what_it_found() {
    let [a, b] = ["static:///10.0.0.5:9000", "static:///10.0.0.6:9000"];
    let (code, text, _) = outcome("compare", &[a, b]).await;
    assert_eq!((code, &*text), (Some(0), "equal: 0 services with 0 instances\n"), "a fixed list has no names");
    let (code, _, errors) = outcome("compare", &[a, "etcd-of-old://h:1"]).await;
    assert!(code == Some(2) && errors.contains("not compiled in"), "{code:?} {errors}");
    assert_eq!(outcome("compare", &[a]).await.0, Some(2));
}
