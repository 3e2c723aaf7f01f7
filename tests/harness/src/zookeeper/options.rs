//! What a ZooKeeper server is started with besides its addresses.

#[cfg(feature = "certificates")]
use crate::Certificates;

/// Options of a ZooKeeper server; the default has ticks of half a second, so that it grants sessions from 1 s to 10 s.
#[derive(Clone, Debug, Default)]
pub struct ZooKeeperOptions {
    pub(super) lines: Vec<String>,
    pub(super) properties: Vec<String>,
    /// Whether clients have to speak TLS.
    pub(super) tls: bool,
}

impl ZooKeeperOptions {
    /// Adds lines to the configuration file, for example `["snapCount=1000"]`; a later line wins.
    #[must_use]
    pub fn with_lines<L: Into<String>>(mut self, lines: impl IntoIterator<Item = L>) -> Self {
        self.lines.extend(lines.into_iter().map(Into::into));
        self
    }

    /// Adds a system property of the server, for example `zookeeper.extendedTypesEnabled` and `true`.
    #[must_use]
    pub fn with_property(mut self, name: &str, value: &str) -> Self {
        self.properties.push(format!("-D{name}={value}"));
        self
    }

    /// Speaks TLS with its clients, and asks each for a certificate of the same authority.
    ///
    /// # Errors
    ///
    /// The errors of joining the server's certificate and key into the one file that ZooKeeper reads.
    #[cfg(feature = "certificates")]
    pub fn with_tls(mut self, certificates: &Certificates) -> std::io::Result<Self> {
        let joined = certificates.join()?;
        self.lines.extend([
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory".to_owned(),
            format!("ssl.keyStore.location={}", joined.display()),
            format!("ssl.trustStore.location={}", certificates.ca().display()),
        ]);
        self.tls = true;
        Ok(self)
    }
}
