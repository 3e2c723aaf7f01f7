//! A client that calls seldom while the set changes all the time, beside tonic's own balanced channel over the same set.

use std::time::Duration;

use discovery_core::picker::RoundRobin;
use discovery_core::{Instance, RegisterOptions};
use discovery_greeter::{GreeterClient, HelloRequest, Named};
use discovery_tonic::{Channel, RunningServer, ServiceServer};
use tonic::transport::Endpoint;
use tonic::transport::channel::Change;
use tonic::{Request, Status};

use super::{SOON, Scene};
use crate::Result;

const SERVICE: &str = "idle";
const ROUNDS: usize = 3;
const CHANGES: usize = 5_000;
/// As long as a client is idle at least.
const IDLE: Duration = Duration::from_secs(5);
/// How long a call may take.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) async fn run(scene: &Scene) -> Result<()> {
    let ours = Channel::new(scene.backend.watch(SERVICE), RoundRobin::new());
    // What tonic is made for: each change of the registry becomes a change of the channel, as soon as that takes it.
    let (tonics, sender) = tonic::transport::Channel::balance_channel::<String>(1024);
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let feeding = tokio::spawn(async move {
        while let Some(change) = told.recv().await {
            if sender.send(change).await.is_err() {
                return;
            }
        }
    });
    let insert = |id: &str, server: &RunningServer| -> Result<Change<String, Endpoint>> {
        Ok(Change::Insert(id.to_owned(), Endpoint::from_shared(format!("http://{}", server.local_addr()))?))
    };
    let mut current = server(scene, 0).await?;
    tell.send(insert("server-0", &current)?)?;
    // A second record of the same server, which changes all the time.
    let endpoint = |server: &RunningServer| format!("grpc://{}", server.local_addr());
    let second = Instance::builder(SERVICE).id("second").endpoint(&endpoint(&current)).build()?;
    let second = scene.backend.register(second, RegisterOptions::default()).await?;
    tell.send(insert("second", &current)?)?;
    let mut failed = [0, 0];
    let calls = async |failed: &mut [usize; 2]| {
        for (at, answer) in [
            hello(GreeterClient::new(ours.clone()), PATIENCE).await,
            hello(GreeterClient::new(tonics.clone()), PATIENCE).await,
        ]
        .into_iter()
        .enumerate()
        {
            if let Err(status) = answer {
                eprintln!("{}: {status}", ["ours", "tonic's"][at]);
                failed[at] += 1;
            }
        }
    };
    calls(&mut [0, 0]).await;
    for round in 1..=ROUNDS {
        let idle = tokio::time::Instant::now();
        for n in 0..CHANGES {
            second.update(|it| it.version(format!("{round}.{n}"))).await?;
            tell.send(insert("second", &current)?)?;
        }
        let next = server(scene, round).await?;
        tell.send(insert(&format!("server-{round}"), &next)?)?;
        second.update(|it| it.endpoints(endpoint(&next).parse::<discovery_core::Endpoint>())).await?;
        tell.send(insert("second", &next)?)?;
        current.shutdown().await?;
        tell.send(Change::Remove(format!("server-{}", round - 1)))?;
        current = next;
        tokio::time::sleep_until(idle + IDLE).await;
        calls(&mut failed).await;
    }
    scene.print("idle_failed", failed[0], &format!("calls of {ROUNDS}"));
    scene.print("idle_tonic_failed", failed[1], &format!("calls of {ROUNDS}"));
    feeding.abort();
    second.deregister().await?;
    Ok(current.shutdown().await?)
}

/// A server in this process, under an id of its own.
async fn server(scene: &Scene, number: usize) -> Result<RunningServer> {
    let server = ServiceServer::bind("127.0.0.1:0").await?.with_grace(Duration::from_millis(200));
    let server = server.instance(move |instance| instance.id(format!("server-{number}")));
    Ok(server.start(scene.backend.clone(), SERVICE, Named::routes(number.to_string())).await?)
}

/// Calls once, with a deadline.
pub(super) async fn hello<T>(mut client: GreeterClient<T>, deadline: Duration) -> Result<String, Status>
where
    T: tonic::client::GrpcService<tonic::body::Body>,
    T::Error: Into<tonic::codegen::StdError>,
    T::ResponseBody: tonic::codegen::Body<Data = tonic::codegen::Bytes> + Send + 'static,
    <T::ResponseBody as tonic::codegen::Body>::Error: Into<tonic::codegen::StdError> + Send,
{
    let mut request = Request::new(HelloRequest { name: "you".to_owned(), count: 0 });
    request.set_timeout(deadline);
    let answer = tokio::time::timeout(SOON, client.say_hello(request)).await;
    answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("hangs"))).map(|reply| reply.into_inner().server)
}
