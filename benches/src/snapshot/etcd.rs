//! etcd: one range over the prefix is the best that its client can do.

use std::sync::Arc;

use async_trait::async_trait;
use discovery_core::{Backend, KeySpace, RegistryUrl};
use etcd_client::{Client, GetOptions, Txn, TxnOp};

use super::{Rival, SERVICE, records};
use crate::Result;

pub(crate) struct Etcd {
    server: discovery_harness::Etcd,
    client: Client,
}

impl Etcd {
    pub(crate) async fn start() -> Result<Self> {
        let server = discovery_harness::Etcd::start().await?;
        let client = Client::connect([server.address()], None).await?;
        for batch in records()?.chunks(100) {
            let puts: Vec<_> =
                batch.iter().map(|(_, key, value)| TxnOp::put(key.as_str(), value.as_slice(), None)).collect();
            client.kv_client().txn(Txn::new().and_then(puts)).await?;
        }
        Ok(Self { server, client })
    }
}

#[async_trait]
impl Rival for Etcd {
    fn open(&self) -> Result<Arc<dyn Backend>> {
        let url: RegistryUrl = format!("etcd://{}", self.server.address()).parse()?;
        Ok(discovery_etcd::connect(&url)?)
    }

    async fn read(&mut self) -> Result<usize> {
        let prefix = KeySpace::new("")?.service_prefix(SERVICE);
        let answer = self.client.get(prefix, Some(GetOptions::new().with_prefix())).await?;
        Ok(answer.kvs().len())
    }
}
