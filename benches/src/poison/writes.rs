//! What another client of the store does to our keys: by the store's own command-line client, or by the bare client library.

use discovery_harness::{Etcd, Redis};
use zookeeper_client::{Acls, Client, CreateMode, Error as ZooKeeperError};

use crate::Result;
use crate::chaos::PREFIX;
use crate::raw::{Raw, Records, stem};
use crate::registry::Store;

/// The letter that a copy's key has behind the original's.
const COPY: &str = "x";

impl Raw<'_> {
    pub(super) async fn delete(&self, keys: &[&str]) -> Result<()> {
        match self {
            Self::Etcd(server) => {
                let deletes: String = keys.iter().map(|key| format!("del {key}\n")).collect();
                server.ctl_stdin(&["txn"], format!("\n{deletes}\n\n").as_bytes()).await?;
            }
            Self::Redis(server) => {
                server.cli(&[&["DEL"], keys].concat()).await?;
            }
            Self::ZooKeeper(client) => {
                for key in keys {
                    match client.delete(key, None).await {
                        Ok(()) | Err(ZooKeeperError::NoNode) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        }
        Ok(())
    }

    /// Deletes all that there is, also what the backends keep beside the records.
    pub(super) async fn wipe(&self, services: &[&str]) -> Result<()> {
        match self {
            Self::Etcd(server) => server.ctl(&["del", "--prefix", &format!("/{PREFIX}")]).await.map(drop)?,
            Self::Redis(server) => server.cli(&["FLUSHALL"]).await.map(drop)?,
            Self::ZooKeeper(client) => {
                for service in services {
                    let base = format!("/{PREFIX}/{service}");
                    let names = client.list_children(&base).await?;
                    let paths: Vec<_> = names.iter().map(|name| format!("{base}/{name}")).collect();
                    self.delete(&paths.iter().map(String::as_str).collect::<Vec<_>>()).await?;
                    // Somebody may have registered anew by now.
                    match client.delete(&base, None).await {
                        Ok(()) | Err(ZooKeeperError::NotEmpty) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes over what stands there, without a lease or a TTL.
    pub(super) async fn put(&self, key: &str, value: &str) -> Result<()> {
        match self {
            Self::Etcd(server) => server.ctl_stdin(&["put", key], value.as_bytes()).await.map(drop)?,
            Self::Redis(server) => server.cli_stdin(&["-x", "SET", key], value.as_bytes()).await.map(drop)?,
            Self::ZooKeeper(client) => match client.set_data(key, value.as_bytes(), None).await {
                Ok(_) | Err(ZooKeeperError::NoNode) => {}
                Err(error) => return Err(error.into()),
            },
        }
        Ok(())
    }

    /// Writes every record a second time, under another key, so that watchers hear of it.
    pub(super) async fn double(&self, service: &str, records: &Records) -> Result<()> {
        for (key, value) in records {
            match self {
                Self::Etcd(server) => put_etcd(server, &format!("{key}{COPY}"), value).await?,
                Self::Redis(server) => script(server, service, &["write", "-", "PUBLISH", &copied(key), value]).await?,
                // A second node of the very same id, as an operator writes it.
                Self::ZooKeeper(client) => create(client, trim_sequence(key), value).await?,
            }
        }
        Ok(())
    }

    /// Removes the copies that nobody else does.
    pub(super) async fn undouble(&self, service: &str, records: &Records) -> Result<()> {
        for (key, _) in records {
            match self {
                Self::Etcd(server) => server.ctl(&["del", &format!("{key}{COPY}")]).await.map(drop)?,
                Self::Redis(server) => script(server, service, &["remove", "-", "PUBLISH", &copied(key)]).await?,
                // Of two nodes of one id the living owner removes the other.
                Self::ZooKeeper(_) => {}
            }
        }
        Ok(())
    }
}

/// Makes the store forget its past, while it serves where it can: etcd's revisions, Redis' log, scripts and subscribers, and ZooKeeper's
/// connections, which is the nearest that it has.
pub(super) async fn compact(store: &Store) -> Result<()> {
    match store {
        Store::Etcd(server) => {
            let header = server.ctl(&["get", "nothing", "-w", "json"]).await?;
            let header: serde_json::Value = serde_json::from_str(&header)?;
            let revision = header["header"]["revision"].as_i64().ok_or("no revision")?;
            server.ctl(&["compact", "--physical", &revision.to_string()]).await?;
            server.ctl(&["defrag"]).await?;
        }
        Store::Redis(server) => {
            for command in ["SCRIPT FLUSH", "BGREWRITEAOF", "MEMORY PURGE", "CLIENT KILL TYPE pubsub"] {
                server.cli(&command.split(' ').collect::<Vec<_>>()).await?;
            }
        }
        other => {
            for member in other.members() {
                member.kill()?;
                member.start_again().await?;
            }
        }
    }
    Ok(())
}

async fn put_etcd(server: &Etcd, key: &str, value: &str) -> Result<()> {
    Ok(server.ctl_stdin(&["put", key], value.as_bytes()).await.map(drop)?)
}

async fn script(server: &Redis, service: &str, words: &[&str]) -> Result<()> {
    let stem = stem(PREFIX, service);
    Ok(server.cli(&[&["EVAL", discovery_redis::REGISTRY_LUA, "1", &stem], words].concat()).await.map(drop)?)
}

async fn create(client: &Client, path: &str, value: &str) -> Result<()> {
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    Ok(client.create(path, value.as_bytes(), &options).await.map(drop)?)
}

/// The id of a copy on Redis.
fn copied(key: &str) -> String {
    format!("{}{COPY}", key.rsplit('/').next().unwrap_or(key))
}

fn trim_sequence(path: &str) -> &str {
    path.rsplit_once('-').map_or(path, |(stem, _)| stem)
}
