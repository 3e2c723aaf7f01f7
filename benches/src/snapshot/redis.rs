//! Redis: the ids of the index and one MGET of all records is the best that its client can do.

use std::sync::Arc;

use async_trait::async_trait;
use discovery_core::{Backend, RegistryUrl};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client};

use super::{Rival, SERVICE, records};
use crate::Result;

pub(crate) struct Redis {
    server: discovery_harness::Redis,
    connection: MultiplexedConnection,
    stem: String,
}

impl Redis {
    pub(crate) async fn start() -> Result<Self> {
        let server = discovery_harness::Redis::start().await?;
        let client = Client::open(format!("redis://{}", server.address()))?;
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let stem = format!("{{/discovery/{SERVICE}}}");
        for batch in records()?.chunks(1_000) {
            let mut writes = redis::pipe();
            for (key, _, value) in batch {
                let write = writes.cmd("EVAL").arg(discovery_redis::REGISTRY_LUA).arg(1).arg(&stem);
                write.arg("write").arg("-").arg("PUBLISH").arg(&*key.id).arg(value).ignore();
            }
            writes.query_async::<()>(&mut connection).await?;
        }
        Ok(Self { server, connection, stem })
    }
}

#[async_trait]
impl Rival for Redis {
    fn open(&self) -> Result<Arc<dyn Backend>> {
        let url: RegistryUrl = format!("redis://{}", self.server.address()).parse()?;
        Ok(discovery_redis::connect(&url)?)
    }

    async fn read(&mut self) -> Result<usize> {
        let index = format!("{}:index", self.stem);
        let ids: Vec<String> = redis::cmd("ZRANGE").arg(index).arg(0).arg(-1).query_async(&mut self.connection).await?;
        let mut read = redis::cmd("MGET");
        for id in ids {
            read.arg(format!("{}/{id}", self.stem));
        }
        let values: Vec<Vec<u8>> = read.query_async(&mut self.connection).await?;
        Ok(values.len())
    }
}
