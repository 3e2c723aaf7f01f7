//! A gRPC server that can be killed with everything it has open.

use discovery_harness::{Listener, Seat, Serve};
use futures_util::stream;
use tonic::transport::Server;

use super::{Hello, Plain};

pub(crate) type Node = discovery_harness::Node<Greeting>;

#[derive(Clone, Default)]
pub(crate) struct Greeting(pub(crate) Server);

impl Serve for Greeting {
    async fn serve(mut self, seat: Seat, listener: Listener) {
        let incoming = stream::unfold(listener, |listener| async {
            let accepted = std::io::Result::Ok(Plain(listener.accept().await));
            Some((accepted, listener))
        });
        let routes = self.0.add_service(Hello { name: seat.name, gate: seat.gate }.server());
        routes.serve_with_incoming(incoming).await.unwrap();
    }
}
