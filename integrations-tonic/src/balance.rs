//! tonic's own balanced channel over a watched service, for those who stay with it.

use std::sync::Arc;

use discovery_core::{Instance, Roster, Step, Watch};
use tokio::sync::mpsc;
use tonic::transport::channel::{Change, Endpoint};

/// Without TLS first: where an instance offers both, the caller says otherwise by what it registers.
const SCHEMES: &[&str] = &["grpc", "http", "tcp", "grpcs", "https"];

/// Keeps a channel of tonic's [`balance_channel`](tonic::transport::Channel::balance_channel) in step with a watch, until the channel is
/// dropped or the backend is closed.
///
/// Instances are inserted and removed by their ids; a changed address is a removal and an insertion. Who is draining while others serve, or
/// has the weight 0, is not there; see [`Roster`]. An outage of the registry removes nobody. `configure` gets each instance with its plain
/// endpoint and may add to it: timeouts, keepalive, TLS (needed for `grpcs` and `https`). Whoever it fails for is left out, with a warning.
///
/// **Limits**, which are tonic's and the reason for [`Channel`](crate::Channel): it picks at random and cannot be given a picker; a call
/// to a dead instance fails until the registry has removed it; with an empty set calls wait for ever, whatever their `grpc-timeout`; and it
/// takes changes only while calls flow, so the first call after a pause may go to an instance that has left. While nobody calls, at most
/// the channel's capacity of changes waits in it, and what comes later is told from the newest set alone.
///
/// ```
/// use discovery_core::{Discovery, memory::MemoryStore};
/// use discovery_tonic::feed;
/// use tonic::transport::Channel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let backend = MemoryStore::new().connect();
/// let (channel, changes) = Channel::balance_channel(1024);
/// tokio::spawn(feed(backend.watch("greeter"), changes, |_instance, endpoint| Ok(endpoint)));
/// // `GreeterClient::new(channel)`, or any other generated client.
/// # drop(channel);
/// # }
/// ```
///
/// # Cancel safety
/// Dropping the future stops the changes; the channel stays as it is.
pub async fn feed<F>(mut watch: Watch, changes: mpsc::Sender<Change<Arc<str>, Endpoint>>, mut configure: F)
where
    F: FnMut(&Instance, Endpoint) -> Result<Endpoint, tonic::transport::Error>,
{
    let mut roster = Roster::new(SCHEMES);
    loop {
        let set = tokio::select! {
            set = watch.changed() => set,
            () = changes.closed() => None,
        };
        let Some(set) = set else { return };
        for step in roster.update(&set) {
            let change = match step {
                Step::Leave(id) => Change::Remove(id),
                Step::Join(instance, endpoint) => {
                    let scheme = if ["grpcs", "https"].contains(&endpoint.scheme()) { "https" } else { "http" };
                    let plain = Endpoint::from_shared(format!("{scheme}://{}", endpoint.authority()));
                    match plain.and_then(|plain| configure(&instance, plain)) {
                        Ok(ready) => Change::Insert(instance.key().id, ready),
                        Err(error) => {
                            tracing::warn!(id = instance.id(), %endpoint, %error, "cannot be called and is left out");
                            continue;
                        }
                    }
                }
            };
            if changes.send(change).await.is_err() {
                return;
            }
        }
    }
}
