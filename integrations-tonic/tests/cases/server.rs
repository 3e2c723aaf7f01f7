//! Serving and registering.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use discovery_core::memory::MemoryStore;
use discovery_core::{ErrorKind, Policy, State};
use discovery_harness::Gate;
use discovery_tonic::{RunningServer, ServiceServer};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tonic::service::Routes;
use tonic::{Code, Status};

use crate::stage::{Hello, SOON, Stage, hello, settle, until};
use discovery_greeter::GreeterClient;
use discovery_greeter::GreeterServer;
use discovery_greeter::HelloRequest;

async fn start(stage: &Stage, name: &str, grace: Duration) -> RunningServer {
    let server = ServiceServer::bind("127.0.0.1:0").await.unwrap().with_grace(grace);
    server.start(stage.backend.clone(), "greeter", Routes::new(Hello::named(name))).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f19_what_was_bound_is_registered_and_can_be_called() {
    for address in ["0.0.0.0:0", "[::]:0", ":0", "127.0.0.1:0", "[::1]:0", "localhost:0"] {
        let stage = Stage::set();
        let server = ServiceServer::bind(address).await.unwrap().with_grace(Duration::ZERO);
        let port = server.local_addr().port();
        assert_ne!(port, 0, "{address}");
        let running = server.start(stage.backend.clone(), "greeter", Routes::new(Hello::named("a"))).await.unwrap();
        let instance = running.registration().instance();
        let endpoint = &instance.endpoints()[0];
        assert_eq!((endpoint.scheme(), endpoint.port()), ("grpc", port), "{address}");
        assert!(["127.0.0.1", "::1"].contains(&endpoint.host()), "{address}: {endpoint}");
        assert_eq!(hello(&stage.channel()).await.unwrap(), "a", "{address}");
        running.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f19_what_is_said_is_registered() {
    let stage = Stage::set();
    let routes = Routes::new(Hello::named("a"));
    let server = ServiceServer::bind("0.0.0.0:0").await.unwrap().advertise("pay.example:4711");
    let server = server.instance(|instance| instance.weight(5).zone("z").id("a"));
    let running = server.start(stage.backend.clone(), "greeter", routes.clone()).await.unwrap();
    let instance = running.registration().instance();
    assert_eq!(instance.endpoints()[0].to_string(), "grpc://pay.example:4711");
    assert_eq!((instance.id(), instance.weight(), instance.zone()), ("a", 5, Some("z")));

    let server = ServiceServer::bind("127.0.0.1:0").await.unwrap().advertise("0.0.0.0");
    let error = server.start(stage.backend.clone(), "greeter", routes).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_bound_is_refused() {
    let bound = ServiceServer::bind("127.0.0.1:0").await.unwrap();
    for (address, kind) in [
        (bound.local_addr().to_string().as_str(), ErrorKind::Unavailable),
        ("127.0.0.1", ErrorKind::InvalidInput),
        (":x", ErrorKind::InvalidInput),
        (":70000", ErrorKind::InvalidInput),
        ("192.0.2.1:0", ErrorKind::InvalidInput),
    ] {
        assert_eq!(ServiceServer::bind(address).await.unwrap_err().kind(), kind, "{address}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registration_that_fails_stops_the_server() {
    let stage = Stage::set();
    let server = ServiceServer::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr();
    let server = server.instance(|instance| instance.id(""));
    let error = server.start(stage.backend.clone(), "greeter", Routes::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    stage.backend.close(Duration::from_secs(1)).await.unwrap();
    let server = ServiceServer::bind(&address.to_string()).await.unwrap();
    let error = server.start(stage.backend.clone(), "greeter", Routes::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    until("nobody listens", || std::net::TcpStream::connect(address).is_err()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r09_a_rolling_restart_under_load_fails_no_call() {
    let stage = Stage::set();
    let grace = Duration::from_millis(100);
    let mut running = vec![start(&stage, "0", grace).await, start(&stage, "1", grace).await];
    let channel = stage.channel();
    settle(&channel, &["0", "1"]).await;
    let (stop, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let load: Vec<_> = (0..8)
        .map(|_| {
            let (channel, stop, calls) = (channel.clone(), stop.clone(), calls.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    hello(&channel).await?;
                    calls.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<_, Status>(())
            })
        })
        .collect();
    for name in ["2", "3", "4", "5", "6", "7"] {
        running.push(start(&stage, name, grace).await);
        let before = calls.load(Ordering::Relaxed);
        running.remove(0).shutdown().await.unwrap();
        assert!(calls.load(Ordering::Relaxed) > before, "no load");
    }
    stop.store(true, Ordering::Relaxed);
    for task in load {
        task.await.unwrap().unwrap();
    }
    settle(&channel, &["6", "7"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r09_serve_until_marks_serves_on_and_deregisters() {
    let stage = Stage::set();
    let channel = stage.channel();
    let (shutdown, asked) = oneshot::channel::<()>();
    let server = ServiceServer::bind("127.0.0.1:0").await.unwrap().with_grace(Duration::from_secs(2));
    let address = server.local_addr();
    let serving = tokio::spawn({
        let backend = stage.backend.clone();
        async move {
            let routes = Routes::new(Hello::named("a"));
            let asked = async {
                asked.await.unwrap();
            };
            server.serve_until(backend, "greeter", routes, asked).await
        }
    });
    settle(&channel, &["a"]).await;
    shutdown.send(()).unwrap();
    let state = || channel.balancer().members().first().map(|member| member.instance().state());
    until("it is marked", || state() == Some(State::Draining)).await;
    // It is the only one, so it is called until it is gone.
    assert_eq!(hello(&channel).await.unwrap(), "a");
    timeout(SOON, serving).await.unwrap().unwrap().unwrap();
    until("it is deregistered", || state().is_none()).await;
    assert!(std::net::TcpStream::connect(address).is_err());
}

/// Others may see an instance before it hears that it is registered. Asked to stop in between, it drains like any other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r09_who_is_asked_to_stop_while_it_registers_drains_too() {
    let store = MemoryStore::new();
    let (backend, link) = store.open("", Policy::default()).unwrap();
    let watch = store.open("", Policy::default()).unwrap().0.watch("greeter");
    backend.snapshot("else", SOON).await.unwrap();
    link.delay(Duration::from_millis(200));
    let (shutdown, asked) = oneshot::channel::<()>();
    let asked = async {
        asked.await.unwrap();
    };
    let server = ServiceServer::bind("127.0.0.1:0").await.unwrap().with_grace(Duration::from_millis(500));
    let serving = tokio::spawn(server.serve_until(backend, "greeter", Routes::new(Hello::named("a")), asked));
    until("it is seen", || watch.latest().is_some_and(|set| set.len() == 1)).await;
    shutdown.send(()).unwrap();
    let state = || Some(watch.latest()?.instances().iter().next()?.state());
    until("it is marked", || state() == Some(State::Draining)).await;
    timeout(SOON, serving).await.unwrap().unwrap().unwrap();
    until("it is deregistered", || state().is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_calls_finish_within_the_deadline_or_are_closed() {
    for opens in [true, false] {
        let stage = Stage::set();
        let gate = Gate::default();
        let routes = Routes::new(GreeterServer::new(Hello { name: "a".to_owned(), gate: gate.clone() }));
        let deadline = if opens { SOON } else { Duration::from_millis(100) };
        let server = ServiceServer::bind("127.0.0.1:0").await.unwrap().with_grace(Duration::ZERO);
        let running = server.with_deadline(deadline).start(stage.backend.clone(), "greeter", routes).await.unwrap();
        let channel = stage.channel();
        settle(&channel, &["a"]).await;
        let mut client = GreeterClient::new(channel.clone());
        let call = HelloRequest { name: "wait".to_owned(), count: 1 };
        let mut call = client.count_hellos(call).await.unwrap().into_inner();
        call.message().await.unwrap().unwrap();
        let stopping = tokio::spawn(running.shutdown());
        until("it is deregistered", || channel.connected() == 0).await;
        if opens {
            gate.open();
            assert!(call.message().await.unwrap().is_none());
        } else {
            assert_eq!(call.message().await.unwrap_err().code(), Code::Unavailable);
        }
        timeout(SOON, stopping).await.unwrap().unwrap().unwrap();
    }
}
