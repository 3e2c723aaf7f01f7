//! Certificates for servers and clients of a test, made afresh and gone with it.

use std::{ffi::OsString, fs, io, path::PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use tempfile::TempDir;

/// What an authority writes.
const FILES: [&str; 5] = ["ca.pem", "server.pem", "server-key.pem", "client.pem", "client-key.pem"];

/// An authority, and what it has signed: a server's certificate for loopback and a client's.
#[derive(Debug)]
pub struct Certificates {
    folder: TempDir,
}

impl Certificates {
    /// Makes an authority of its own; two of them do not trust each other.
    ///
    /// # Errors
    ///
    /// When the files cannot be written, or the keys not be made.
    pub fn new() -> io::Result<Self> {
        Self::with_names(["localhost", "127.0.0.1", "::1"])
    }

    /// The same, with other names in both certificates.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_names<const N: usize>(names: [&str; N]) -> io::Result<Self> {
        let folder = TempDir::with_prefix("certificates-")?;
        let mut params = CertificateParams::new(Vec::new()).map_err(io::Error::other)?;
        // Whoever bears the name of its issuer is taken for self-signed by OpenSSL.
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let authority = CertifiedIssuer::self_signed(params, key).map_err(io::Error::other)?;
        fs::write(folder.path().join("ca.pem"), authority.pem())?;
        for (name, purpose) in
            [("server", ExtendedKeyUsagePurpose::ServerAuth), ("client", ExtendedKeyUsagePurpose::ClientAuth)]
        {
            let mut params = CertificateParams::new(names.map(str::to_owned)).map_err(io::Error::other)?;
            params.distinguished_name.push(DnType::CommonName, name);
            params.extended_key_usages = vec![purpose, ExtendedKeyUsagePurpose::ClientAuth];
            let key = KeyPair::generate().map_err(io::Error::other)?;
            let certificate = params.signed_by(&key, &authority).map_err(io::Error::other)?;
            fs::write(folder.path().join(format!("{name}.pem")), certificate.pem())?;
            fs::write(folder.path().join(format!("{name}-key.pem")), key.serialize_pem())?;
        }
        Ok(Self { folder })
    }

    /// Puts what another authority has signed in the place of these files, as a rotation does.
    ///
    /// # Errors
    ///
    /// When the files cannot be written.
    pub fn replace_by(&self, other: &Self) -> io::Result<()> {
        for name in FILES {
            fs::copy(other.folder.path().join(name), self.folder.path().join(name))?;
        }
        let both = self.both();
        if both.exists() { self.join().map(drop) } else { Ok(()) }
    }

    /// The server's key and certificate in one file, as ZooKeeper wants them.
    pub(crate) fn join(&self) -> io::Result<PathBuf> {
        let (certificate, key) = self.server();
        fs::write(self.both(), fs::read_to_string(key)? + &fs::read_to_string(certificate)?)?;
        Ok(self.both())
    }

    fn both(&self) -> PathBuf {
        self.folder.path().join("server-both.pem")
    }

    /// The authority's certificate.
    pub fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// A certificate and its key, both in PEM, for a server on loopback.
    pub fn server(&self) -> (PathBuf, PathBuf) {
        self.pair("server")
    }

    /// A certificate and its key, both in PEM, for a client.
    pub fn client(&self) -> (PathBuf, PathBuf) {
        self.pair("client")
    }

    /// The server's certificate, its key and the authority's certificate as arguments with these names.
    pub(crate) fn arguments(&self, names: [&str; 3]) -> impl Iterator<Item = OsString> {
        let (certificate, key) = self.server();
        names.into_iter().zip([certificate, key, self.ca()]).flat_map(|(name, path)| [name.into(), path.into()])
    }

    fn pair(&self, name: &str) -> (PathBuf, PathBuf) {
        (self.folder.path().join(format!("{name}.pem")), self.folder.path().join(format!("{name}-key.pem")))
    }
}
