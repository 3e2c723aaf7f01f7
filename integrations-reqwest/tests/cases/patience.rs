//! Instances that do not answer in the time that requests have.

use std::net::SocketAddr;
use std::time::Duration;

use discovery_core::BalancerOptions;
use discovery_harness::{SOON, eventually};
use discovery_reqwest::Client;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::stage::{Node, Stage, counts, member, settings, until};

const SHORT: Duration = Duration::from_millis(500);

/// A host that answers no dial, since its queue is full as long as this is held.
struct Hole {
    address: SocketAddr,
    _listener: TcpListener,
    _queue: Vec<TcpStream>,
}

impl Hole {
    async fn open() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut queue = Vec::new();
        // Full is a queue that lets nobody in any more.
        while let Ok(stream) = tokio::time::timeout(SHORT, TcpStream::connect(address)).await {
            queue.push(stream.unwrap());
        }
        Self { address, _listener: listener, _queue: queue }
    }
}

async fn failures(client: &Client, calls: usize) -> usize {
    let mut failures = 0;
    for _ in 0..calls {
        let answer = client.get("http://orders/name").timeout(SHORT).send().await;
        failures += usize::from(answer.is_err_and(|error| error.is_timeout()));
    }
    failures
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_swallows_dials_costs_three_requests_with_short_timeouts() {
    let stage = Stage::set();
    let (b, hole) = (Node::start("b").await, Hole::open().await);
    let _registered = [stage.register("a", &format!("http://{}", hole.address)).await, stage.join(&b).await];
    let client = stage.client();
    assert_eq!(failures(&client, 100).await, 3);
    assert_eq!(counts(&client, "a"), [0, 2, 1, 0, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_hangs_costs_three_requests_with_default_options() {
    let stage = Stage::set();
    let b = Node::start("b").await;
    let hung = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = hung.local_addr().unwrap();
    let _registered = [stage.register("a", &format!("http://{address}")).await, stage.join(&b).await];
    let client = Client::builder(stage.backend.clone()).with_settings(settings).build().unwrap();
    assert_eq!(failures(&client, 100).await, 3);
    assert_eq!(counts(&client, "a"), [0, 2, 1, 0, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_between_them_makes_timeouts_failures_and_nothing_else() {
    let stage = Stage::set();
    let a = Node::start("a").await;
    let _a = stage.join(&a).await;
    let client = stage.client();
    for _ in 0..3 {
        for _ in 0..2 {
            let late = client.get("http://orders/wait").timeout(SHORT).send().await.unwrap_err();
            assert!(late.is_timeout(), "{late}");
        }
        assert_eq!(failures(&client, 1).await, 0);
    }
    assert_eq!(counts(&client, "a"), [0, 6, 0, 3, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timeout_during_the_dial_does_not_make_an_absent_instance_present() {
    let stage = Stage::set();
    let (b, hole) = (Node::start("b").await, Hole::open().await);
    let _registered = [stage.register("a", &format!("http://{}", hole.address)).await, stage.join(&b).await];
    // Without ejections only being left alone keeps requests away.
    let client = stage.builder().with_settings(|| settings().connect_timeout(Duration::from_secs(1)));
    let client = client.with_balancer(BalancerOptions::default().with_outliers(None)).build().unwrap();
    until("both are known", || client.middleware().balancer("http://orders").unwrap().unwrap().candidates() == 2).await;
    // One that waits longer finds out that nobody is there.
    while counts(&client, "a")[2] == 0 {
        client.get("http://orders/name").send().await.unwrap();
    }
    // The first times alone are short, and a slow test may look when one is over.
    eventually(SOON, "one that gave up says so too", async || {
        let gave_up = failures(&client, 1).await == 1;
        if gave_up && !member(&client, "a").is_available() { Ok(()) } else { Err("it may be tried again") }
    })
    .await;
}
