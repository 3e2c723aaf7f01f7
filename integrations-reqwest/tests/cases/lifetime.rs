//! What lives how long.

use std::time::Duration;

use discovery_core::{Instance, memory::MemoryStore};
use discovery_reqwest::Client;
use tokio::runtime::Handle;

use crate::stage::{Node, Stage, counts, hello, settle, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f11_what_is_in_flight_finishes_after_its_instance_is_gone() {
    let stage = Stage::set();
    let (a, b) = (Node::start("a").await, Node::start("b").await);
    let held = stage.join(&a).await;
    let client = stage.client();
    settle(&client, &["a"]).await;
    let mut stream = client.get("http://orders/stream").send().await.unwrap();
    assert_eq!(stream.chunk().await.unwrap().unwrap(), "begin");
    let unanswered = tokio::spawn({
        let client = client.clone();
        async move { client.get("http://orders/wait").send().await.unwrap().text().await.unwrap() }
    });
    until("both are with a", || counts(&client, "a")[4] == 2 && a.requests() == 3).await;
    let _b = stage.join(&b).await;
    held.deregister().await.unwrap();
    settle(&client, &["b"]).await;
    until("only b has a client", || client.middleware().held() == (1, 1)).await;
    assert!(a.closed() < a.accepted(), "a call ended with its instance");
    a.open_gate();
    assert_eq!(unanswered.await.unwrap(), "a");
    assert_eq!(stream.text().await.unwrap(), "end");
    until("a is closed", || a.closed() == a.accepted()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f11_two_hundred_departed_instances_leave_no_task_no_socket_and_no_client() {
    let stage = Stage::set();
    let client = stage.client();
    let a = Node::start("a").await;
    // Something else stays registered, so that the backend keeps its lease from round to round.
    let other = Instance::builder("other").endpoint("http://127.0.0.1:1").build().unwrap();
    let _other = stage.backend.register(other, Default::default()).await.unwrap();
    let first = stage.join(&a).await;
    settle(&client, &["a"]).await;
    first.deregister().await.unwrap();
    until("a is closed", || a.closed() == 1).await;
    let metrics = Handle::current().metrics();
    let baseline = metrics.num_alive_tasks();
    for round in 0..200 {
        let mut node = Node::start(&format!("node-{round}")).await;
        let held = stage.join(&node).await;
        for _ in 0..5 {
            assert_eq!(hello(&client).await.unwrap(), node.name());
        }
        // Half of them go before their record does.
        if round % 2 == 0 {
            node.kill().await;
            let late = client.get("http://orders/name").timeout(Duration::from_millis(50)).send().await;
            assert!(late.is_err());
        }
        held.deregister().await.unwrap();
        until("it is closed", || node.closed() == node.accepted() && client.middleware().held() == (1, 0)).await;
    }
    until("no task is left", || metrics.num_alive_tasks() <= baseline).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f11_nothing_is_left_after_the_last_clone() {
    let stage = Stage::set();
    let a = Node::start("a").await;
    let _a = stage.join(&a).await;
    let watch = stage.backend.watch("orders");
    watch.ready(Duration::from_secs(5)).await.unwrap();
    let metrics = Handle::current().metrics();
    let baseline = metrics.num_alive_tasks();
    let client = stage.client();
    settle(&client.clone(), &["a"]).await;
    let stream = client.get("http://orders/stream").send().await.unwrap();
    drop(client);
    a.open_gate();
    assert_eq!(stream.text().await.unwrap(), "beginend");
    until("a is closed", || a.closed() == a.accepted()).await;
    until("no task is left", || metrics.num_alive_tasks() <= baseline).await;
}

#[tokio::test(start_paused = true)]
async fn a_service_is_opened_by_its_first_request_shared_and_closed_when_idle() {
    let backend = MemoryStore::new().connect();
    let idle = Duration::from_secs(60);
    let client = Client::builder(backend).with_idle_timeout(idle).build().unwrap();
    assert_eq!(client.middleware().held(), (0, 0));
    let (one, same) =
        (client.middleware().balancer("http://orders"), client.clone().middleware().balancer("http://orders/x"));
    assert!(one.is_ok() && same.is_ok());
    client.middleware().balancer("http://payments").unwrap();
    assert_eq!(client.middleware().held(), (2, 0));
    tokio::time::sleep(idle / 2).await;
    client.middleware().balancer("http://orders").unwrap();
    tokio::time::sleep(idle * 3 / 4).await;
    assert_eq!(client.middleware().held(), (1, 0), "payments was idle");
    tokio::time::sleep(idle).await;
    assert_eq!(client.middleware().held(), (0, 0));
    // However many names come, the number is bounded.
    for n in 0..1_100 {
        client.middleware().balancer(format!("http://service-{n}")).unwrap();
    }
    assert_eq!(client.middleware().held(), (1_000, 0));
}
