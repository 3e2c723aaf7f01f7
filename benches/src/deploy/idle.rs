//! A client that calls seldom while the set changes all the time, beside tonic's own balanced channel over the same set.

use std::time::Duration;

use discovery_core::picker::RoundRobin;
use discovery_core::{Instance, RegisterOptions};
use discovery_greeter::{GreeterClient, HelloRequest, Named};
use discovery_tonic::{Channel, RunningServer, ServiceServer, feed};
use tonic::{Request, Status};

use super::{SOON, Scene};
use crate::Result;

const SERVICE: &str = "idle";
const ROUNDS: usize = 3;
const CHANGES: usize = 5_000;
/// As long as a client is idle at least.
const IDLE: Duration = Duration::from_secs(5);

pub(super) async fn run(scene: &Scene) -> Result<()> {
    let ours = Channel::new(scene.backend.watch(SERVICE), RoundRobin::new());
    let (tonics, changes) = tonic::transport::Channel::balance_channel(1024);
    let feeding = tokio::spawn(feed(scene.backend.watch(SERVICE), changes, |_, endpoint| Ok(endpoint)));
    let mut current = server(scene, 0).await?;
    // Somebody who comes and goes, which is what changes the set.
    let instance = |n: usize| {
        Instance::builder(SERVICE).id("other").endpoint("grpc://127.0.0.1:1").weight(0).version(n.to_string())
    };
    let other = scene.backend.register(instance(0).build()?, RegisterOptions::default()).await?;
    let mut failed = [0, 0];
    for round in 1..=ROUNDS {
        for answer in
            [hello(&mut GreeterClient::new(ours.clone())).await, hello(&mut GreeterClient::new(tonics.clone())).await]
        {
            if let Err(status) = answer {
                eprintln!("while all is well: {status}");
            }
        }
        let idle = tokio::time::Instant::now();
        for n in 0..CHANGES {
            // Each is another address, so that nobody can overlook it.
            let endpoint = format!("grpc://127.0.0.1:{}", 1 + n % 1_000).parse()?;
            other.update(|it| it.endpoints([endpoint]).weight(1).version(n.to_string())).await?;
        }
        other.update(|it| it.weight(0)).await?;
        let next = server(scene, round).await?;
        current.shutdown().await?;
        current = next;
        tokio::time::sleep_until(idle + IDLE).await;
        failed[0] += usize::from(hello(&mut GreeterClient::new(ours.clone())).await.is_err());
        failed[1] += usize::from(hello(&mut GreeterClient::new(tonics.clone())).await.is_err());
    }
    scene.print("idle_failed", failed[0], "calls of 3");
    scene.print("idle_tonic_failed", failed[1], "calls of 3");
    feeding.abort();
    other.deregister().await?;
    Ok(current.shutdown().await?)
}

/// A server in this process, under an id of its own.
async fn server(scene: &Scene, number: usize) -> Result<RunningServer> {
    let server = ServiceServer::bind("127.0.0.1:0").await?.with_grace(Duration::from_millis(200));
    let server = server.instance(move |instance| instance.id(format!("server-{number}")));
    Ok(server.start(scene.backend.clone(), SERVICE, Named::routes(number.to_string())).await?)
}

async fn hello<T>(client: &mut GreeterClient<T>) -> Result<String, Status>
where
    T: tonic::client::GrpcService<tonic::body::Body>,
    T::Error: Into<tonic::codegen::StdError>,
    T::ResponseBody: tonic::codegen::Body<Data = tonic::codegen::Bytes> + Send + 'static,
    <T::ResponseBody as tonic::codegen::Body>::Error: Into<tonic::codegen::StdError> + Send,
{
    let mut request = Request::new(HelloRequest { name: "you".to_owned(), count: 0 });
    request.set_timeout(Duration::from_secs(5));
    let answer = tokio::time::timeout(SOON, client.say_hello(request)).await;
    answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("hangs"))).map(|reply| reply.into_inner().server)
}
