//! TLS and Unix sockets.

use std::sync::Arc;

use discovery_core::TlsFiles;
use discovery_harness::Certificates;
use tokio::net::{TcpListener, UnixListener};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tonic::Code;
use tonic::transport::Server;

use crate::stage::{Hello, Plain, Stage, hello, request, until};

/// A server with the certificate of these, which may ask its clients for theirs. It ends with its task.
async fn serve(name: &str, certificates: &Certificates, asks_clients: bool, protocol: &[u8]) -> String {
    let (certificate, key) = certificates.server();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
    let builder = if asks_clients {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(certificates.ca()).unwrap()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build().unwrap();
        builder.with_client_cert_verifier(verifier)
    } else {
        builder.with_no_client_auth()
    };
    let chain = vec![CertificateDer::from_pem_file(certificate).unwrap()];
    let mut config = builder.with_single_cert(chain, PrivateKeyDer::from_pem_file(key).unwrap()).unwrap();
    config.alpn_protocols = vec![protocol.to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let incoming = futures_util::stream::unfold((listener, acceptor), |(listener, acceptor)| async {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            if let Ok(stream) = acceptor.accept(stream).await {
                return Some((std::io::Result::Ok(Plain(stream)), (listener, acceptor)));
            }
        }
    });
    let routes = Server::builder().add_service(Hello::named(name));
    tokio::spawn(routes.serve_with_incoming(incoming));
    address.to_string()
}

fn files(certificates: &Certificates) -> TlsFiles {
    TlsFiles::new().with_ca(certificates.ca())
}

/// Registers an address with a name for its certificate, or without.
async fn register(stage: &Stage, id: &str, endpoint: &str, name: Option<&str>) {
    let builder = discovery_core::Instance::builder("greeter").id(id).endpoint(endpoint);
    let builder = name.into_iter().fold(builder, |builder, name| builder.metadata("tls.name", name));
    std::mem::forget(stage.backend.register(builder.build().unwrap(), Default::default()).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_certificate_has_the_pinned_name_or_that_of_the_metadata_or_of_the_service() {
    for (names, in_metadata, pinned) in [
        (["greeter"], None, None),
        (["a.example"], Some("a.example"), None),
        (["pinned.example"], Some("other.example"), Some("pinned.example")),
    ] {
        let stage = Stage::set();
        let certificates = Certificates::with_names(names).unwrap();
        let address = serve("a", &certificates, false, b"h2").await;
        // Whatever the scheme says, no call is made without TLS.
        let scheme = if pinned.is_some() { "grpc" } else { "grpcs" };
        register(&stage, "a", &format!("{scheme}://{address}"), in_metadata).await;
        let files = pinned.into_iter().fold(files(&certificates), |files, name| files.with_server_name(name));
        let channel = stage.channel_builder().with_tls(files).build();
        assert_eq!(hello(&channel).await.unwrap(), "a", "{names:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_certificate_is_refused_with_its_reason() {
    let stage = Stage::set();
    let (ours, theirs) =
        (Certificates::with_names(["greeter"]).unwrap(), Certificates::with_names(["greeter"]).unwrap());
    let wrong_name = Certificates::with_names(["other"]).unwrap();
    for (server, files, protocol, why) in [
        (&theirs, files(&ours), &b"h2"[..], "invalid peer certificate"),
        (&wrong_name, files(&wrong_name), b"h2", "not valid for name"),
        (&ours, files(&ours), b"http/1.1", "NoApplicationProtocol"),
        (&ours, TlsFiles::new().with_ca("/nowhere/ca.pem"), b"h2", "/nowhere/ca.pem"),
    ] {
        let address = serve("a", server, false, protocol).await;
        register(&stage, "a", &format!("grpcs://{address}"), None).await;
        let builder = stage.channel_builder().with_tls(files).with_when_empty(discovery_tonic::WhenEmpty::FailFast);
        let channel = builder.build();
        until("a is known", || channel.balancer().members().len() == 1).await;
        let status = hello(&channel).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        let text = status.message();
        assert!(text.contains(why) && text.contains(&address) && text.contains("\"greeter\""), "{why}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_asks_for_a_certificate_gets_ours() {
    let stage = Stage::set();
    let certificates = Certificates::with_names(["greeter"]).unwrap();
    let address = serve("a", &certificates, true, b"h2").await;
    register(&stage, "a", &format!("grpcs://{address}"), None).await;
    let (certificate, key) = certificates.client();
    let channel = stage.channel_builder().with_tls(files(&certificates).with_identity(certificate, key)).build();
    assert_eq!(hello(&channel).await.unwrap(), "a");
    let without = stage.channel_builder().with_tls(files(&certificates)).build();
    let mut call = tonic::Request::new(request("you"));
    call.set_timeout(std::time::Duration::from_secs(1));
    let status = discovery_greeter::GreeterClient::new(without).say_hello(call).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_on_the_same_machine_is_called_through_its_unix_socket() {
    let stage = Stage::set();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("greeter.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let incoming = futures_util::stream::unfold(listener, |listener| async {
        let accepted = listener.accept().await.map(|(stream, _)| Plain(stream));
        Some((accepted, listener))
    });
    tokio::spawn(Server::builder().add_service(Hello::named("a")).serve_with_incoming(incoming));
    register(&stage, "a", &format!("unix://{}", path.display()), None).await;
    let channel = stage.channel();
    assert_eq!(hello(&channel).await.unwrap(), "a");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_larger_than_the_windows_arrive_whole_over_tls() {
    let stage = Stage::set();
    let certificates = Certificates::with_names(["greeter"]).unwrap();
    let address = serve("a", &certificates, false, b"h2").await;
    register(&stage, "a", &format!("grpcs://{address}"), None).await;
    let channel = stage.channel_builder().with_tls(files(&certificates)).build();
    let mut client = discovery_greeter::GreeterClient::new(channel).max_decoding_message_size(16 << 20);
    // Twelve mebibytes: in messages of three there, and as one back.
    let name = |n: usize| format!("{n}{}", "x".repeat(3 << 20));
    let requests = futures_util::stream::iter((0..4).map(move |n| request(&name(n))));
    let reply = client.greet_all(requests).await.unwrap().into_inner();
    assert!(reply.message == (0..4).map(name).collect::<Vec<_>>().join(","), "{} bytes", reply.message.len());
}
