//! The TLS options of a registry URL, `ca`, `cert`, `key` and `server_name`, and the same for calls.
//!
//! They name files in PEM, which are read on every connect, so that a rotated certificate is used without a restart.

use std::fmt;
use std::fs;
use std::path::PathBuf;

use super::UrlOptions;
use crate::{Error, ErrorKind, Result};

/// Where the certificates of a connection are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    ca: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
    server_name: Option<String>,
}

/// The certificates as they are in their files now, in PEM. `Debug` shows none of them.
#[derive(Clone)]
#[non_exhaustive]
pub struct TlsMaterial {
    /// The authorities that a server's certificate must come from; `None` stands for those that the system trusts.
    pub ca: Option<Vec<u8>>,
    /// Our own certificate and its key, for servers that ask for one.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The name that the server's certificate must have, if it is not the host's.
    pub server_name: Option<String>,
}

impl TlsFiles {
    /// Trusts the authorities that the system trusts, and shows no certificate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the file with the authorities that a server's certificate must come from.
    #[must_use]
    pub fn with_ca(mut self, ca: impl Into<PathBuf>) -> Self {
        self.ca = Some(ca.into());
        self
    }

    /// Sets the files with our own certificate and its key, for servers that ask for one (mutual TLS).
    #[must_use]
    pub fn with_identity(mut self, cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.identity = Some((cert.into(), key.into()));
        self
    }

    /// Sets the name that the server's certificate must have.
    #[must_use]
    pub fn with_server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Takes the options; `cert` and `key` only go together.
    ///
    /// # Errors
    /// `InvalidInput` if one of `cert` and `key` is missing.
    pub fn from_url(options: &mut UrlOptions) -> Result<Self> {
        let mut path = |name| options.text(name).map(PathBuf::from);
        let (ca, cert, key) = (path("ca"), path("cert"), path("key"));
        let server_name = options.text("server_name");
        let identity = match (cert, key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            (Some(_), None) => return Err(options.invalid("cert", "needs its key; add key=/path/to/key.pem")),
            (None, Some(_)) => return Err(options.invalid("key", "needs its certificate; add cert=/path/to/cert.pem")),
        };
        Ok(Self { ca, identity, server_name })
    }

    /// The name that a server's certificate must have, if one is set.
    pub fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// Reads the files, which are small, without yielding.
    ///
    /// # Errors
    /// `InvalidInput`, naming the file that cannot be read.
    pub fn read(&self) -> Result<TlsMaterial> {
        let read = |path: &PathBuf| {
            fs::read(path).map_err(|error| {
                let what = format!("certificate file {}", path.display());
                Error::new(ErrorKind::InvalidInput, "read", what, error.to_string()).with_source(error)
            })
        };
        let ca = self.ca.as_ref().map(read).transpose()?;
        let identity = match &self.identity {
            Some((cert, key)) => Some((read(cert)?, read(key)?)),
            None => None,
        };
        Ok(TlsMaterial { ca, identity, server_name: self.server_name.clone() })
    }
}

impl fmt::Debug for TlsMaterial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsMaterial")
            .field("ca", &self.ca.is_some())
            .field("identity", &self.identity.is_some())
            .field("server_name", &self.server_name)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RegistryUrl;

    fn files(query: &str) -> Result<TlsFiles> {
        let mut options = format!("etcds://h?{query}").parse::<RegistryUrl>()?.options();
        let files = TlsFiles::from_url(&mut options)?;
        options.finish()?;
        Ok(files)
    }

    #[test]
    fn certificate_and_key_only_go_together() {
        assert!(files("ca=/a&cert=/b&key=/c&server_name=etcd").is_ok());
        assert!(files("").is_ok());
        assert!(files("cert=/b").unwrap_err().to_string().contains("needs its key"));
        assert!(files("key=/b").unwrap_err().to_string().contains("needs its certificate"));
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = files("ca=/does/not/exist.pem").unwrap().read().unwrap_err();
        assert!(error.to_string().contains("/does/not/exist.pem"), "{error}");
    }
}
