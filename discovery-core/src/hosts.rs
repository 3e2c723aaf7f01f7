//! The hosts of a registry, one of them in use: what every backend does that chooses its host itself.

use std::fmt;
use std::net::{IpAddr, ToSocketAddrs, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::time::timeout;

use crate::{Error, ErrorKind, Policy, Result};

/// Hosts, and the connection to one of them that works. [`reconnect`](Self::reconnect) is called by one task at a time, as the engine does.
pub struct Hosts<L> {
    hosts: Vec<String>,
    patience: Duration,
    /// The host to try next. Only one task connects, so any ordering does.
    next: AtomicUsize,
    current: RwLock<Option<Arc<L>>>,
    address: String,
}

impl<L> Hosts<L> {
    /// Takes hosts as `host:port` and the registry's address for messages, without credentials.
    pub fn new(hosts: Vec<String>, address: String, policy: &Policy) -> Self {
        let count = u32::try_from(hosts.len()).unwrap_or(u32::MAX).max(1);
        let patience = (policy.connect_timeout / count).min(policy.timeout);
        Self { hosts, patience, next: AtomicUsize::new(0), current: RwLock::new(None), address }
    }

    /// The address for messages.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// How long one host may take, so that the last one still gets its turn within the policy's deadline.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// The connection that works, or worked last.
    ///
    /// # Errors
    /// `Unavailable` if none is open.
    pub fn live(&self) -> Result<Arc<L>> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner).clone();
        current.ok_or_else(|| {
            Error::new(ErrorKind::Unavailable, "reach", &*self.address, "no connection is open at the moment")
        })
    }

    /// Gives the connection up and tries each host once, beginning after the one that failed. Dropping the future leaves no connection.
    ///
    /// # Errors
    /// The refusal of a host where no other would decide differently, else what the last host failed with.
    pub async fn reconnect<F: Future<Output = Result<L>>>(&self, open: impl Fn(String) -> F) -> Result<()> {
        if self.replace(None).is_some() {
            // The host in use has failed; asking it again first would cost what is left of the TTL.
            self.next.fetch_add(1, Ordering::Relaxed);
        }
        let mut last = None;
        for _ in 0..self.hosts.len() {
            let at = self.next.load(Ordering::Relaxed) % self.hosts.len();
            let host = &self.hosts[at];
            let error = match timeout(self.patience, open(host.clone())).await {
                Ok(Ok(live)) => {
                    self.replace(Some(Arc::new(live)));
                    return Ok(());
                }
                Ok(Err(error)) => error,
                Err(_) => {
                    let why = format!("no answer within {:?}", self.patience);
                    Error::new(ErrorKind::DeadlineExceeded, "connect to", host.as_str(), why)
                }
            };
            self.next.store(at + 1, Ordering::Relaxed);
            if matches!(
                error.kind(),
                ErrorKind::Unauthenticated
                    | ErrorKind::PermissionDenied
                    | ErrorKind::InvalidInput
                    | ErrorKind::Unsupported
            ) {
                return Err(error);
            }
            last = Some(error);
        }
        Err(last.unwrap_or_else(|| Error::new(ErrorKind::Internal, "connect to", &*self.address, "there is no host")))
    }

    fn replace(&self, live: Option<Arc<L>>) -> Option<Arc<L>> {
        std::mem::replace(&mut *self.current.write().unwrap_or_else(PoisonError::into_inner), live)
    }
}

impl<L> fmt::Debug for Hosts<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hosts").field("address", &self.address).finish_non_exhaustive()
    }
}

/// The local address that a datagram to the first of the hosts that has an address would leave from; none is sent.
pub async fn source_towards(hosts: &[String]) -> Option<IpAddr> {
    let hosts = hosts.to_vec();
    // Resolving a name blocks.
    let found = tokio::task::spawn_blocking(move || {
        let target = hosts.iter().find_map(|host| host.to_socket_addrs().ok()?.next())?;
        let any = if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any).ok()?;
        socket.connect(target).ok()?;
        Some(socket.local_addr().ok()?.ip())
    });
    found.await.ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    fn hosts() -> Hosts<String> {
        Hosts::new(["a:1", "b:1", "c:1"].map(String::from).to_vec(), "etcd://a".to_owned(), &Policy::default())
    }

    #[tokio::test(start_paused = true)]
    async fn each_host_is_tried_once_beginning_after_the_one_that_failed() {
        let (hosts, tried) = (hosts(), Mutex::new(Vec::new()));
        let open = |works: &'static str| {
            let tried = &tried;
            move |host: String| async move {
                tried.lock().unwrap().push(host.clone());
                match host {
                    host if host == works => Ok(host),
                    host if host == "b:1" => std::future::pending().await,
                    host => Err(Error::new(ErrorKind::Unavailable, "connect to", host, "refused")),
                }
            }
        };
        assert_eq!(hosts.live().map(drop).unwrap_err().kind(), ErrorKind::Unavailable);
        hosts.reconnect(open("c:1")).await.unwrap();
        assert_eq!(*hosts.live().unwrap(), "c:1");
        assert_eq!(hosts.reconnect(open("none")).await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(hosts.live().is_err());
        assert_eq!(*tried.lock().unwrap(), ["a:1", "b:1", "c:1", "a:1", "b:1", "c:1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_that_all_hosts_share_ends_the_turn() {
        let (hosts, tried) = (hosts(), AtomicUsize::new(0));
        let refused = hosts.reconnect(|host| {
            tried.fetch_add(1, Ordering::Relaxed);
            async move { Err::<String, _>(Error::new(ErrorKind::Unauthenticated, "connect to", host, "no")) }
        });
        assert_eq!(refused.await.unwrap_err().kind(), ErrorKind::Unauthenticated);
        assert_eq!(tried.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn f19_the_source_is_of_the_first_host_that_has_an_address() {
        let hosts = ["no-such-host.invalid:1", "127.0.0.1:1"].map(String::from);
        assert_eq!(source_towards(&hosts).await.map(|ip| ip.is_loopback()), Some(true));
        assert_eq!(source_towards(&[]).await, None);
    }
}
