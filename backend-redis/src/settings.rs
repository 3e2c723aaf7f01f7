//! What a URL says about the way to Redis.

use std::sync::Arc;

use discovery_core::{Error, ErrorKind, Login, RegistryUrl, Result, TlsFiles, UrlOptions};
use redis::{ProtocolVersion, RedisConnectionInfo};

/// Redis's own default port for clients.
const DEFAULT_PORT: u16 = 6379;
/// That of its Sentinels.
const DEFAULT_SENTINEL_PORT: u16 = 26379;

/// Whom to ask where the master is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Topology {
    /// The hosts themselves: the first that answers and is a master.
    Hosts,
    /// Sentinels, which know the master by this name.
    Sentinel(String),
    /// The Cluster's own map, on any of its servers.
    Cluster,
}

/// How to reach Redis. It holds the password, so it has no `Debug`.
pub(crate) struct Settings {
    pub(crate) hosts: Vec<String>,
    pub(crate) topology: Topology,
    pub(crate) prefix: String,
    /// The way into the servers.
    pub(crate) way: Arc<Way>,
    /// The way into the Sentinels, which have accounts of their own.
    pub(crate) sentinel_way: Arc<Way>,
}

/// How to get into a server. It holds the password, so it has no `Debug`.
pub(crate) struct Way {
    login: Option<Login>,
    /// Database and protocol.
    session: RedisConnectionInfo,
    /// Where the certificates are, for `rediss`.
    pub(crate) tls: Option<TlsFiles>,
}

impl Way {
    /// The database by its number.
    pub(crate) fn database(&self) -> i64 {
        self.session.db()
    }

    /// Credentials as they are now, database and protocol.
    pub(crate) fn login(&self) -> Result<RedisConnectionInfo> {
        let session = self.session.clone();
        match &self.login {
            None => Ok(session),
            Some(login) => Ok(session.set_username(login.user()).set_password(login.password()?)),
        }
    }
}

impl Settings {
    pub(crate) fn read(url: &RegistryUrl, options: &mut UrlOptions) -> Result<Self> {
        let invalid = |why: &str| {
            Error::new(ErrorKind::InvalidInput, "use", format!("registry URL {:?}", url.to_string()), why.to_owned())
        };
        // Notifications and answers share a connection, which needs RESP3. The library's name in CLIENT LIST would cost rights.
        let plain = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name();
        let mut session = plain.clone();
        // As Redis' own tools read it, a password alone is that of the default user.
        let login = Login::from_url(url, options, Some("default"))?;
        let (client, behind) = url.scheme().split_once('+').unwrap_or((url.scheme(), ""));
        let tls = if client == "rediss" { Some(TlsFiles::from_url(options)?) } else { None };
        let (topology, port, prefix) = match behind {
            "sentinel" => {
                let path = url.path().trim_start_matches('/');
                let (name, rest) = path.split_once('/').unwrap_or((path, ""));
                if name.is_empty() {
                    return Err(invalid(
                        "it names no master; write redis+sentinel://host:26379/name-of-the-master/prefix",
                    ));
                }
                (Topology::Sentinel(name.to_owned()), DEFAULT_SENTINEL_PORT, rest)
            }
            "cluster" => (Topology::Cluster, DEFAULT_PORT, url.path()),
            _ => (Topology::Hosts, DEFAULT_PORT, url.path()),
        };
        let sentinel_login = match topology {
            Topology::Sentinel(_) => Login::from_options(
                options,
                ["sentinel_user", "sentinel_password", "sentinel_password_file"],
                Some("default"),
            )?,
            _ => None,
        };
        // A Cluster has one database.
        if topology != Topology::Cluster
            && let Some(database) = options.number("db")?
        {
            let database = i64::try_from(database).map_err(|_| options.invalid("db", "is no number of a database"))?;
            session = session.set_db(database);
        }
        let way = Arc::new(Way { login, session, tls: tls.clone() });
        let sentinel_way = Arc::new(Way { login: sentinel_login, session: plain, tls });
        Ok(Self { hosts: url.hosts(port)?, topology, prefix: prefix.to_owned(), way, sentinel_way })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Settings> {
        let url: RegistryUrl = text.parse()?;
        let mut options = url.options();
        let settings = Settings::read(&url, &mut options)?;
        options.finish()?;
        Ok(settings)
    }

    #[test]
    fn a_url_says_whom_to_ask() {
        let settings = read("redis+sentinel://app:pw@a,b:1/main/prod/eu?sentinel_password=x&db=3").unwrap();
        assert_eq!(
            (settings.hosts.as_slice(), settings.prefix.as_str()),
            (&["a:26379", "b:1"].map(String::from)[..], "prod/eu")
        );
        assert_eq!(settings.topology, Topology::Sentinel("main".into()));
        let login = settings.way.login().unwrap();
        assert_eq!((login.db(), login.username(), login.password()), (3, Some("app"), Some("pw")));
        let sentinel = settings.sentinel_way.login().unwrap();
        assert_eq!((sentinel.password(), sentinel.username()), (Some("x"), Some("default")));
        let settings = read("redis://:pw@a").unwrap();
        let login = settings.way.login().unwrap();
        assert_eq!((login.username(), login.password()), (Some("default"), Some("pw")));
        let settings = read("redis+cluster://a/prod").unwrap();
        assert_eq!((settings.topology, settings.way.login().unwrap().username()), (Topology::Cluster, None));
        assert_eq!(read("redis://a").unwrap().topology, Topology::Hosts);
        let settings = read("rediss+cluster://a?ca=/ca.pem").unwrap();
        assert!(settings.topology == Topology::Cluster && settings.way.tls.is_some());
        for bad in [
            "redis://user@a",
            "redis://",
            "redis+sentinel://a",
            "redis+sentinel://a/main?sentinel_user=x",
            "redis+sentinel://a/main?sentinel_password=x&sentinel_password_file=/x",
            "redis+cluster://a?db=1",
            "redis://a?sentinel_user=x",
            "redis://a?ca=/x",
        ] {
            assert_eq!(read(bad).map(drop).unwrap_err().kind(), ErrorKind::InvalidInput, "{bad}");
        }
    }
}
