//! TLS over a connection, with a provider of our own choice, so that the process's default is nobody's business here.

#[cfg(feature = "tls")]
pub(crate) use rustls_stream::wrap;

#[cfg(feature = "tls")]
mod rustls_stream {
    use std::sync::Arc;

    use discovery_core::{Error, ErrorKind, Result, TlsFiles, TlsMaterial};
    use tokio::io::{AsyncRead, AsyncWrite};
    use tokio_rustls::TlsConnector;
    use tokio_rustls::client::TlsStream;
    use tokio_rustls::rustls::crypto::aws_lc_rs;
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};

    use crate::error::classify;

    /// Shakes hands. The certificates are read for each connection, so that a rotated one is used.
    pub(crate) async fn wrap<S: AsyncRead + AsyncWrite + Unpin>(
        files: &TlsFiles,
        host: &str,
        stream: S,
    ) -> Result<TlsStream<S>> {
        let material = files.read()?;
        let name = material.server_name.as_deref().unwrap_or_else(|| bare(host)).to_owned();
        let name = ServerName::try_from(name).map_err(|error| unusable("name of the server", &error.to_string()))?;
        let connector = TlsConnector::from(Arc::new(configuration(&material)?));
        connector.connect(name, stream).await.map_err(|error| classify(error.into(), "connect to", host))
    }

    fn configuration(material: &TlsMaterial) -> Result<ClientConfig> {
        let mut roots = RootCertStore::empty();
        match &material.ca {
            Some(ca) => {
                for certificate in certificates(ca, "ca")? {
                    roots.add(certificate).map_err(|error| unusable("ca", &error.to_string()))?;
                }
            }
            // Some of what a system trusts may be unreadable; what is missing shows at the handshake.
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable("provider", &error.to_string()))?
            .with_root_certificates(roots);
        let Some((certificate, key)) = &material.identity else {
            return Ok(builder.with_no_client_auth());
        };
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| unusable("key", &error.to_string()))?;
        builder
            .with_client_auth_cert(certificates(certificate, "cert")?, key)
            .map_err(|error| unusable("cert or key", &error.to_string()))
    }

    fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        match found {
            Ok(found) if !found.is_empty() => Ok(found),
            Ok(_) => Err(unusable(what, "there is no certificate in it")),
            Err(error) => Err(unusable(what, &error.to_string())),
        }
    }

    /// A host without its port and brackets.
    fn bare(host: &str) -> &str {
        let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }

    fn unusable(what: &str, why: &str) -> Error {
        Error::new(ErrorKind::InvalidInput, "use", format!("the {what} for TLS"), why)
    }
}

#[cfg(not(feature = "tls"))]
pub(crate) async fn wrap<S>(_files: &discovery_core::TlsFiles, host: &str, _stream: S) -> discovery_core::Result<S> {
    let advice = "TLS is not compiled in; build discovery-redis with the feature \"tls\"";
    Err(discovery_core::Error::new(discovery_core::ErrorKind::Unsupported, "connect to", host, advice))
}
