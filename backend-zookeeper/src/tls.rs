//! TLS as the client takes it, and why a handshake was refused, which the client keeps to itself.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use discovery_core::{Error, ErrorKind, Result, TlsFiles, TlsMaterial};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig};
use zookeeper_client::{TlsCa, TlsCerts, TlsDynamicCerts, TlsIdentity, TlsOptions};

/// A refusal is asked for once in this time, since each costs a connection (L1); what was found stands for longer than what was not, as a
/// server that closes at once may take its reason with it.
const ASK_AGAIN: Duration = Duration::from_secs(4);
const FOUND: Duration = Duration::from_secs(10);
/// With TLS 1.3 a server refuses a client's certificate after the handshake, if at all, this soon.
const SECOND_THOUGHTS: Duration = Duration::from_millis(300);

/// The certificates of a handle.
pub(crate) struct Tls {
    files: TlsFiles,
    /// What open sessions use for their next connection; none before the first.
    certificates: Mutex<Option<TlsDynamicCerts>>,
    /// When it was asked last why a handshake is refused, and what was found.
    refused: tokio::sync::Mutex<Option<(Instant, Option<Error>)>>,
}

impl Tls {
    /// Checks that every host can stand in a certificate; the client would panic at one that cannot.
    pub(crate) fn new(files: TlsFiles, hosts: &[String]) -> Result<Self> {
        for host in hosts {
            name_of(host)?;
        }
        Ok(Self { files, certificates: Mutex::default(), refused: tokio::sync::Mutex::default() })
    }

    /// Reads the files anew, for new sessions and for the next connection of one that is open, so that a rotated certificate is used.
    pub(crate) fn options(&self) -> Result<TlsOptions> {
        let certificates = certificates(&self.files.read()?)?;
        let mut current = self.certificates.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(current) = &*current {
            current.update(certificates);
        } else {
            *current = Some(TlsDynamicCerts::new(certificates));
        }
        let options = TlsOptions::new();
        Ok(match &*current {
            Some(current) => options.with_certs(current.clone()),
            None => options,
        })
    }

    /// Shakes hands with each host until one refuses ours, or we refuse theirs.
    pub(crate) async fn refusal(&self, hosts: &[String], patience: Duration) -> Option<Error> {
        let mut refused = self.refused.lock().await;
        if let Some((asked, found)) = &*refused
            && asked.elapsed() < if found.is_some() { FOUND } else { ASK_AGAIN }
        {
            return found.clone();
        }
        let mut found = None;
        if let Ok(config) = self.files.read().and_then(|material| material.client_config()) {
            let config = Arc::new(config);
            for host in hosts {
                let shaken = timeout(patience, shake_hands(host, config.clone())).await;
                found = shaken.ok().and_then(|shaken| refused_by(&shaken.err()?, host));
                if found.is_some() {
                    break;
                }
            }
        }
        *refused = Some((Instant::now(), found.clone()));
        found
    }
}

fn certificates(material: &TlsMaterial) -> Result<TlsCerts> {
    let text = |pem: &[u8]| String::from_utf8_lossy(pem).into_owned();
    let Some(ca) = &material.ca else {
        return Err(invalid("add ca=/path/to/ca.pem; the authorities that the system trusts are not used"));
    };
    let mut builder = TlsCerts::builder().with_ca(TlsCa::from_pem(&text(ca)).map_err(|e| invalid(&e.to_string()))?);
    if let Some((certificate, key)) = &material.identity {
        let identity = TlsIdentity::from_pem(&text(certificate), &text(key));
        builder = builder.with_identity(identity.map_err(|e| invalid(&e.to_string()))?);
    }
    builder.build().map_err(|e| invalid(&e.to_string()))
}

async fn shake_hands(host: &str, config: Arc<ClientConfig>) -> io::Result<()> {
    let name = name_of(host).map_err(io::Error::other)?;
    let stream = TcpStream::connect(host).await?;
    let mut stream = TlsConnector::from(config).connect(name, stream).await?;
    match timeout(SECOND_THOUGHTS, stream.read_u8()).await {
        Ok(Err(error)) => Err(error),
        _ => Ok(()),
    }
}

/// Only what TLS itself says is a refusal; a connection that breaks can be any outage.
fn refused_by(error: &io::Error, host: &str) -> Option<Error> {
    let cause = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    let why = format!("the TLS handshake was refused: {cause}; check ca, cert and key in the registry URL");
    Some(Error::new(ErrorKind::Unauthenticated, "connect to", host, why))
}

fn name_of(host: &str) -> Result<ServerName<'static>> {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name).trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(name.to_owned())
        .map_err(|_| Error::new(ErrorKind::InvalidInput, "use", format!("host {host:?}"), "no certificate can name it"))
}

fn invalid(why: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, "use", "the TLS options of the registry URL", why)
}
