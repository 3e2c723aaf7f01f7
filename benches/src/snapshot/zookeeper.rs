//! ZooKeeper: the names of the children, and multi-reads of all of them at once, is the best that its client can do.

use std::sync::Arc;

use async_trait::async_trait;
use discovery_core::{Backend, RegistryUrl};
use futures_util::future::try_join_all;
use zookeeper_client::{Acls, Client, CreateMode};

use super::{Rival, SERVICE, records};
use crate::Result;

/// Nodes a request; larger ones are no faster.
const PAGE: usize = 500;

pub(crate) struct ZooKeeper {
    server: discovery_harness::ZooKeeper,
    client: Client,
    base: String,
}

impl ZooKeeper {
    pub(crate) async fn start() -> Result<Self> {
        let server = discovery_harness::ZooKeeper::start().await?;
        let client = Client::connect(&server.address()).await?;
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        let base = format!("/discovery/{SERVICE}");
        for parent in ["/discovery", &base] {
            client.create(parent, b"", &options).await?;
        }
        for batch in records()?.chunks(PAGE) {
            let mut writer = client.new_multi_writer();
            for (_, path, value) in batch {
                writer.add_create(path, value, &options)?;
            }
            writer.commit().await?;
        }
        Ok(Self { server, client, base })
    }
}

#[async_trait]
impl Rival for ZooKeeper {
    fn open(&self) -> Result<Arc<dyn Backend>> {
        let url: RegistryUrl = format!("zookeeper://{}", self.server.address()).parse()?;
        Ok(discovery_zookeeper::connect(&url)?)
    }

    async fn read(&mut self) -> Result<usize> {
        let names = self.client.list_children(&self.base).await?;
        let pages = names.chunks(PAGE).map(|names| {
            let mut reader = self.client.new_multi_reader();
            let asked = names.iter().try_for_each(|name| reader.add_get_data(&format!("{}/{name}", self.base)));
            async move {
                asked?;
                reader.commit().await
            }
        });
        Ok(try_join_all(pages).await?.iter().map(Vec::len).sum())
    }
}
