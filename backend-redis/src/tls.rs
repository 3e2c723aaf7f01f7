//! TLS over a connection, with a provider of our own choice, so that the process's default is nobody's business here.

#[cfg(feature = "tls")]
pub(crate) use rustls_stream::wrap;

#[cfg(feature = "tls")]
mod rustls_stream {
    use std::sync::Arc;

    use discovery_core::{Error, ErrorKind, Result, TlsFiles};
    use tokio::io::{AsyncRead, AsyncWrite};
    use tokio_rustls::TlsConnector;
    use tokio_rustls::client::TlsStream;
    use tokio_rustls::rustls::pki_types::ServerName;

    use crate::error::classify;

    /// Shakes hands. The certificates are read for each connection, so that a rotated one is used.
    pub(crate) async fn wrap<S: AsyncRead + AsyncWrite + Unpin>(
        files: &TlsFiles,
        host: &str,
        stream: S,
    ) -> Result<TlsStream<S>> {
        let material = files.read()?;
        let name = material.server_name.as_deref().unwrap_or_else(|| bare(host)).to_owned();
        let name = ServerName::try_from(name).map_err(|error| {
            Error::new(ErrorKind::InvalidInput, "use", "the name of the server for TLS", error.to_string())
        })?;
        let connector = TlsConnector::from(Arc::new(material.client_config()?));
        connector.connect(name, stream).await.map_err(|error| classify(error.into(), "connect to", host))
    }

    /// A host without its port and brackets.
    fn bare(host: &str) -> &str {
        let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }
}

#[cfg(not(feature = "tls"))]
pub(crate) async fn wrap<S>(_files: &discovery_core::TlsFiles, host: &str, _stream: S) -> discovery_core::Result<S> {
    let advice = "TLS is not compiled in; build discovery-redis with the feature \"tls\"";
    Err(discovery_core::Error::new(discovery_core::ErrorKind::Unsupported, "connect to", host, advice))
}
