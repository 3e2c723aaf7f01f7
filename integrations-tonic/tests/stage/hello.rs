//! The test service: what it does is up to the name in the request.

use std::pin::Pin;

use discovery_harness::Gate;
use futures_util::{Stream, StreamExt, stream};
use tonic::codec::CompressionEncoding;
use tonic::{Code, Request, Response, Status, Streaming};

use discovery_greeter::{Greeter, GreeterServer};
use discovery_greeter::{HelloReply, HelloRequest};

/// Answers with its own name. `fail:<code>` fails with that code, `wait` answers once the gate is open, `at:<name>:<other>` obeys the other name if
/// that server is meant and says how many attempts
/// came before.
#[derive(Clone)]
pub(crate) struct Hello {
    pub(crate) name: String,
    pub(crate) gate: Gate,
}

impl Hello {
    /// A service whose gate stands open.
    pub(crate) fn named(name: &str) -> GreeterServer<Self> {
        let gate = Gate::default();
        gate.open();
        Self { name: name.to_owned(), gate }.server()
    }

    /// It compresses for those who ask for it.
    pub(crate) fn server(self) -> GreeterServer<Self> {
        let gzip = CompressionEncoding::Gzip;
        GreeterServer::new(self).accept_compressed(gzip).send_compressed(gzip)
    }

    fn reply(&self, message: String) -> HelloReply {
        HelloReply { server: self.name.clone(), message }
    }

    async fn obey(self, name: &str) -> Result<(), Status> {
        let name = match name.strip_prefix("at:").and_then(|rest| rest.split_once(':')) {
            Some((server, name)) if server == self.name => name,
            Some(_) => "",
            None => name,
        };
        if name == "wait" {
            self.gate.opened().await;
        }
        match name.strip_prefix("fail:") {
            Some(code) => Err(Status::new(Code::from_bytes(code.as_bytes()), "as you wish")),
            None => Ok(()),
        }
    }
}

#[tonic::async_trait]
impl Greeter for Hello {
    type CountHellosStream = Pin<Box<dyn Stream<Item = Result<HelloReply, Status>> + Send>>;
    type GreetEachStream = Pin<Box<dyn Stream<Item = Result<HelloReply, Status>> + Send>>;

    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let metadata = request.metadata().clone();
        let header = |name: &str| metadata.get(name).map(|value| value.to_str().unwrap().to_owned());
        let (agent, attempts) = (header("user-agent"), header("grpc-previous-rpc-attempts"));
        let name = request.into_inner().name;
        self.clone().obey(&name).await?;
        if name.starts_with("echo:") {
            let [through, number] = ["x-through", "x-number"].map(|name| header(name).unwrap_or_default());
            return Ok(Response::new(self.reply(format!("{name} {through} {number}"))));
        }
        let message = if name.starts_with("at:") { attempts } else { agent };
        Ok(Response::new(self.reply(message.unwrap_or_default())))
    }

    async fn count_hellos(&self, request: Request<HelloRequest>) -> Result<Response<Self::CountHellosStream>, Status> {
        let HelloRequest { name, count } = request.into_inner();
        let this = self.clone();
        let replies = stream::iter((0..count).map({
            let this = this.clone();
            move |n| Ok(this.reply(n.to_string()))
        }));
        // The name is obeyed after the replies, so that it shows in the trailers.
        let end = stream::once(async move { this.obey(&name).await.map(|()| None).transpose() });
        Ok(Response::new(Box::pin(replies.chain(end.filter_map(|end| async { end })))))
    }

    async fn greet_all(&self, request: Request<Streaming<HelloRequest>>) -> Result<Response<HelloReply>, Status> {
        let mut names = Vec::new();
        let mut requests = request.into_inner();
        while let Some(request) = requests.message().await? {
            self.clone().obey(&request.name).await?;
            names.push(request.name);
        }
        Ok(Response::new(self.reply(names.join(","))))
    }

    async fn greet_each(
        &self,
        request: Request<Streaming<HelloRequest>>,
    ) -> Result<Response<Self::GreetEachStream>, Status> {
        let this = self.clone();
        Ok(Response::new(request.into_inner().map(move |request| Ok(this.reply(request?.name))).boxed()))
    }
}
