//! One connection to one address, from the dial to the server's greeting.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;

use super::builder::Options;
use super::connection::{Room, Sender, shake_hands};
use super::target::Target;
use super::wire::Io;

/// Makes a connection that is ready for requests, and pinged after a silence, within the connect timeout; otherwise says why not, with the
/// address.
///
/// It lives as long as a sender or an answer that is still being read, unless it breaks; the room tells when it takes no more requests.
pub(super) async fn dial(
    target: &Target,
    ping_after: Duration,
    options: &Options,
) -> Result<(Sender, Arc<Room>), String> {
    let address = target.endpoint.authority();
    match tokio::time::timeout(options.connect_timeout, connect(target, ping_after, options)).await {
        Ok(Ok(connected)) => Ok(connected),
        Ok(Err(error)) => Err(format!("{address}: {error}")),
        Err(_) => Err(format!("{address}: no connection within {:?}", options.connect_timeout)),
    }
}

async fn connect(target: &Target, ping_after: Duration, options: &Options) -> io::Result<(Sender, Arc<Room>)> {
    let stream = open(target).await?;
    let stream = match &options.tls {
        None => stream,
        Some(files) => secure(files, target, stream).await?,
    };
    shake_hands(stream, ping_after, options).await
}

async fn open(target: &Target) -> io::Result<Box<dyn Io>> {
    let endpoint = &target.endpoint;
    if let Some(path) = endpoint.unix_path() {
        #[cfg(unix)]
        return Ok(Box::new(tokio::net::UnixStream::connect(path).await?));
        #[cfg(not(unix))]
        return Err(io::Error::other(format!("{path}: there are no Unix sockets on this system")));
    }
    let stream = TcpStream::connect((endpoint.host(), endpoint.port())).await?;
    stream.set_nodelay(true)?;
    Ok(Box::new(stream))
}

/// Shakes hands. The certificates are read for each connection, so that a rotated one is used.
#[cfg(feature = "tls")]
async fn secure(files: &discovery_core::TlsFiles, target: &Target, stream: Box<dyn Io>) -> io::Result<Box<dyn Io>> {
    use std::sync::Arc;
    use tokio_rustls::rustls::pki_types::ServerName;

    let name = ServerName::try_from(target.name.to_string())
        .map_err(|error| io::Error::other(format!("no certificate can have the name {:?}: {error}", target.name)))?;
    let files = files.clone();
    let read = tokio::task::spawn_blocking(move || files.read().and_then(|material| material.client_config()));
    let mut config = read.await.map_err(io::Error::other)?.map_err(io::Error::other)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    match stream.get_ref().1.alpn_protocol() {
        Some(b"h2") => Ok(Box::new(stream)),
        _ => Err(io::Error::other("the server does not offer HTTP/2 by ALPN, as gRPC over TLS needs it")),
    }
}

#[cfg(not(feature = "tls"))]
async fn secure(_: &discovery_core::TlsFiles, _: &Target, _: Box<dyn Io>) -> io::Result<Box<dyn Io>> {
    Err(io::Error::other("TLS is not compiled in; build discovery-tonic with the feature \"tls\""))
}
