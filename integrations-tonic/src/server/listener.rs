//! Binding, and accepting whatever happens.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use discovery_core::{Error, ErrorKind, Result};
use futures_util::Stream;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::accepted::Accepted;

/// Trying again sooner would spin while the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub(super) async fn bind(address: &str) -> Result<(TcpListener, SocketAddr)> {
    let listener = match address.strip_prefix(':') {
        Some(port) => {
            let port = port.parse::<u16>().map_err(|error| {
                Error::new(ErrorKind::InvalidInput, "bind", address, "the port is not a number up to 65535")
                    .with_source(error)
            })?;
            // One IPv6 socket takes both families on Unix; where there is no IPv6, or two sockets are needed, IPv4 matters more.
            let wildcards: [SocketAddr; 2] = [([0u16; 8], port).into(), ([0u8; 4], port).into()];
            let (first, second) = if cfg!(unix) { (wildcards[0], wildcards[1]) } else { (wildcards[1], wildcards[0]) };
            TcpListener::bind([first, second].as_slice()).await
        }
        None => TcpListener::bind(address).await,
    };
    listener.and_then(|listener| listener.local_addr().map(|bound| (listener, bound))).map_err(|error| {
        let advice = if address.contains(':') { "" } else { "; write host:port, or :port for all interfaces" };
        Error::new(kind(&error), "bind", address, format!("{error}{advice}")).with_source(error)
    })
}

fn kind(error: &io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::AddrInUse => ErrorKind::Unavailable,
        io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
        // A resolver's failure has no kind of its own, and every other failure here comes from what was asked for.
        _ => ErrorKind::InvalidInput,
    }
}

/// Accepts connections for as long as it lives; each ends when `cut` says so, or when its sender is gone.
pub(super) fn accept(listener: TcpListener, cut: watch::Receiver<bool>) -> impl Stream<Item = io::Result<Accepted>> {
    futures_util::stream::unfold((listener, cut), |(listener, cut)| async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(%error, "an accepted connection is gone");
                        continue;
                    }
                    return Some((Ok(Accepted::new(stream, cut.clone())), (listener, cut)));
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connections; trying again");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    })
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
