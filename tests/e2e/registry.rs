//! Registries to tell a story on: each real one with a server of its own, and the one in this process.

use std::sync::{Arc, Mutex};

use discovery_harness::Proxy;
use discovery_kit::memory::{MemoryLink, MemoryStore};
use discovery_kit::{Backend, Policy, Schemes};

/// A registry, and the power to take it away.
pub(crate) struct Registry {
    pub(crate) name: &'static str,
    server: Server,
}

enum Server {
    Memory(MemoryStore, Mutex<Vec<MemoryLink>>),
    Etcd(discovery_harness::Etcd),
    ZooKeeper(discovery_harness::ZooKeeper),
    Redis(discovery_harness::Redis),
}

/// What lies between a handle and its registry.
pub(crate) enum Cable {
    Memory(MemoryLink),
    Proxy(Proxy),
}

impl Cable {
    pub(crate) async fn cut(&self) {
        match self {
            Self::Memory(link) => link.cut(),
            Self::Proxy(proxy) => proxy.cut().await,
        }
    }
}

impl Registry {
    /// Every registry that is compiled in and installed.
    pub(crate) async fn all() -> Vec<Self> {
        let mut all = vec![Self { name: "memory", server: Server::Memory(MemoryStore::new(), Mutex::default()) }];
        all.extend(Self::real().await);
        all
    }

    /// Those that several processes can reach.
    pub(crate) async fn real() -> Vec<Self> {
        let mut real = Vec::new();
        if discovery_harness::available("etcd").expect("etcd, which CI requires") {
            real.push(Self { name: "etcd", server: Server::Etcd(discovery_harness::Etcd::start().await.unwrap()) });
        }
        if discovery_harness::ZooKeeper::available().expect("ZooKeeper, which CI requires") {
            let server = discovery_harness::ZooKeeper::start().await.unwrap();
            real.push(Self { name: "zookeeper", server: Server::ZooKeeper(server) });
        }
        if discovery_harness::available("redis-server").expect("Redis, which CI requires") {
            real.push(Self { name: "redis", server: Server::Redis(discovery_harness::Redis::start().await.unwrap()) });
        }
        real
    }

    /// The URL, with bounds that a test can wait for.
    pub(crate) fn url(&self, prefix: &str) -> String {
        let address = match &self.server {
            Server::Memory(..) => "",
            Server::Etcd(server) => &server.address(),
            Server::ZooKeeper(server) => &server.address(),
            Server::Redis(server) => &server.address(),
        };
        format!("{}://{address}/{prefix}?ttl=3s&backoff=2s&probe=1s&timeout=1s", self.name)
    }

    /// Opens a handle by its URL, over a cable of its own.
    pub(crate) async fn handle(&self, prefix: &str) -> (Arc<dyn Backend>, Cable) {
        let url = self.url(prefix);
        let address = match &self.server {
            Server::Memory(store, links) => {
                let (store, opened) = (store.clone(), Arc::new(Mutex::new(None)));
                let given = opened.clone();
                let schemes = Schemes::default().with("memory", move |url| {
                    let mut options = url.options();
                    let (backend, link) = store.open(url.path(), Policy::from_url(&mut options)?)?;
                    *given.lock().unwrap() = Some(link);
                    Ok(backend)
                });
                let backend = schemes.connect(&url).unwrap();
                let link = opened.lock().unwrap().take().unwrap();
                links.lock().unwrap().push(link.clone());
                return (backend, Cable::Memory(link));
            }
            Server::Etcd(server) => server.socket_address(),
            Server::ZooKeeper(server) => server.socket_address(),
            Server::Redis(server) => server.socket_address(),
        };
        let proxy = Proxy::start(address).await.unwrap();
        let url = url.replace(&address.to_string(), &proxy.address());
        (discovery_kit::connect(&url).unwrap(), Cable::Proxy(proxy))
    }

    /// Stops the registry as a crash does.
    pub(crate) fn leave(&self) {
        match &self.server {
            Server::Memory(_, links) => links.lock().unwrap().iter().for_each(MemoryLink::stop),
            Server::Etcd(server) => server.kill().unwrap(),
            Server::ZooKeeper(server) => server.kill().unwrap(),
            Server::Redis(server) => server.kill().unwrap(),
        }
    }

    /// Starts it again with what it had.
    pub(crate) async fn come_back(&self) {
        match &self.server {
            Server::Memory(_, links) => links.lock().unwrap().iter().for_each(MemoryLink::pass),
            Server::Etcd(server) => server.start_again().await.unwrap(),
            Server::ZooKeeper(server) => server.start_again().await.unwrap(),
            Server::Redis(server) => server.start_again().await.unwrap(),
        }
    }
}
