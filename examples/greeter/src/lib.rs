//! The Greeter service of `proto/greeter.proto`, and a server that answers with its own name.

#[allow(missing_docs, unreachable_pub, clippy::all, clippy::missing_errors_doc, reason = "generated")]
mod generated;

use futures_util::{Stream, StreamExt, stream};
use std::pin::Pin;
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};

pub use generated::greeter_client::GreeterClient;
pub use generated::greeter_server::{Greeter, GreeterServer};
pub use generated::{HelloReply, HelloRequest};

/// A greeter that says who it is.
#[derive(Debug, Clone)]
pub struct Named(pub String);

impl Named {
    /// The routes of a server that serves this greeter alone.
    pub fn routes(name: impl Into<String>) -> Routes {
        Routes::new(GreeterServer::new(Self(name.into())))
    }

    fn reply(&self, name: &str) -> HelloReply {
        HelloReply { server: self.0.clone(), message: format!("Hello {name}, this is {}", self.0) }
    }
}

type Replies = Pin<Box<dyn Stream<Item = Result<HelloReply, Status>> + Send>>;

#[tonic::async_trait]
impl Greeter for Named {
    type CountHellosStream = Replies;
    type GreetEachStream = Replies;

    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        Ok(Response::new(self.reply(&request.into_inner().name)))
    }

    async fn count_hellos(&self, request: Request<HelloRequest>) -> Result<Response<Self::CountHellosStream>, Status> {
        let HelloRequest { name, count } = request.into_inner();
        let reply = self.reply(&name);
        Ok(Response::new(stream::repeat(reply).take(count as usize).map(Ok).boxed()))
    }

    async fn greet_all(&self, request: Request<Streaming<HelloRequest>>) -> Result<Response<HelloReply>, Status> {
        let mut requests = request.into_inner();
        let mut names = Vec::new();
        while let Some(request) = requests.message().await? {
            names.push(request.name);
        }
        Ok(Response::new(self.reply(&names.join(", "))))
    }

    async fn greet_each(&self, requests: Request<Streaming<HelloRequest>>) -> Result<Response<Replies>, Status> {
        let this = self.clone();
        Ok(Response::new(requests.into_inner().map(move |request| Ok(this.reply(&request?.name))).boxed()))
    }
}
