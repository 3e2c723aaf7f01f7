//! TLS as the client takes it.

use discovery_core::TlsMaterial;
use etcd_client::{Certificate, Identity, TlsOptions};

/// Trusts the given authority alone, or what the system trusts if none is given.
pub(crate) fn options(material: TlsMaterial) -> TlsOptions {
    let mut options = match &material.ca {
        Some(ca) => TlsOptions::new().ca_certificate(Certificate::from_pem(ca)),
        None => TlsOptions::new().with_native_roots(),
    };
    if let Some((certificate, key)) = &material.identity {
        options = options.identity(Identity::from_pem(certificate, key));
    }
    if let Some(name) = &material.server_name {
        options = options.domain_name(name);
    }
    options
}
