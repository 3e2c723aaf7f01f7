//! The health service of a server, and its readiness.

use std::time::Duration;

use discovery_core::ErrorKind;
use discovery_harness::eventually;
use discovery_tonic::ServiceServer;
use tokio::sync::oneshot;
use tonic::Code;
use tonic::service::Routes;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::stage::{Hello, SOON, Stage, hello};

/// What a server's health service says, asked directly: `None` if it does not know the name.
async fn health(address: std::net::SocketAddr, service: &str) -> Option<ServingStatus> {
    // A channel over this one server, under another name.
    let stage = Stage::set();
    let _registered = stage.register("asked", &format!("grpc://{address}")).await;
    let request = HealthCheckRequest { service: service.to_owned() };
    match HealthClient::new(stage.channel()).check(request).await {
        Ok(reply) => Some(reply.into_inner().status()),
        Err(status) => {
            assert_eq!(status.code(), Code::NotFound, "{status}");
            None
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r09_a_server_is_registered_once_it_is_ready_and_not_serving_while_it_drains() {
    let stage = Stage::set();
    let (ready, readiness) = oneshot::channel::<()>();
    let server = ServiceServer::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr();
    let server =
        server.with_health_of(["greeter.Greeter"]).with_readiness(readiness).with_grace(Duration::from_secs(2));
    let backend = stage.backend.clone();
    let starting = tokio::spawn(async move { server.start(backend, "greeter", Routes::new(Hello::named("a"))).await });
    assert_eq!(health(address, "").await, Some(ServingStatus::NotServing));
    assert_eq!(health(address, "greeter.Greeter").await, Some(ServingStatus::NotServing));
    assert!(!starting.is_finished());
    assert_eq!(stage.backend.snapshot("greeter", SOON).await.unwrap().len(), 0);

    ready.send(()).unwrap();
    let running = starting.await.unwrap().unwrap();
    let known = [health(address, "").await, health(address, "greeter.Greeter").await];
    assert_eq!(known, [Some(ServingStatus::Serving); 2]);
    assert_eq!(health(address, "other").await, None);
    let channel = stage.channel();
    assert_eq!(hello(&channel).await.unwrap(), "a");

    let stopping = tokio::spawn(running.shutdown());
    let is_draining = async || health(address, "").await == Some(ServingStatus::NotServing);
    eventually(SOON, "it is not serving", is_draining).await;
    // It serves on meanwhile.
    assert_eq!(hello(&channel).await.unwrap(), "a");
    stopping.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_get_ready_does_not_start() {
    let stage = Stage::set();
    let server = ServiceServer::bind("127.0.0.1:0").await.unwrap().with_readiness(async { Err("no cache") });
    let error = server.start(stage.backend.clone(), "greeter", Routes::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("it did not get ready: no cache"), "{error}");
    assert_eq!(stage.backend.snapshot("greeter", SOON).await.unwrap().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn routes_with_a_health_service_of_their_own_keep_it() {
    let stage = Stage::set();
    let (reporter, own) = tonic_health::server::health_reporter();
    reporter.set_service_status("mine", tonic_health::ServingStatus::Serving).await;
    let server = ServiceServer::bind("127.0.0.1:0").await.unwrap().without_health().with_grace(Duration::ZERO);
    let running = server.start(stage.backend.clone(), "greeter", Routes::new(own)).await.unwrap();
    assert_eq!(health(running.local_addr(), "mine").await, Some(ServingStatus::Serving));
    running.shutdown().await.unwrap();
}
