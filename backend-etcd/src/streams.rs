//! One watch stream for all subscriptions of a connection.
//!
//! etcd multiplexes watches over a stream by an id that the client chooses (since 3.4). One stream costs the server three goroutines
//! and us two tasks, however many services are watched. The tasks end with the last subscription's connection, or with the stream.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use etcd_client::{Error as ClientError, WatchClient, WatchOptions, WatchResponse};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

type Routes = Arc<Mutex<HashMap<i64, mpsc::UnboundedSender<WatchResponse>>>>;

/// Opens the stream with the first subscription, and again with the next one after it broke.
pub(crate) struct Streams {
    client: WatchClient,
    open: tokio::sync::Mutex<Option<Stream>>,
}

struct Stream {
    routes: Routes,
    orders: mpsc::UnboundedSender<Order>,
    next_id: i64,
    /// Owned, so that they end with the connection.
    tasks: [JoinHandle<()>; 2],
}

enum Order {
    Watch { key: Vec<u8>, options: WatchOptions },
    Cancel(i64),
}

/// One watch on the shared stream; dropping it cancels the watch.
pub(crate) struct Subscription {
    id: i64,
    answers: mpsc::UnboundedReceiver<WatchResponse>,
    routes: Routes,
    orders: mpsc::UnboundedSender<Order>,
}

impl Streams {
    pub(crate) fn new(client: WatchClient) -> Self {
        Self { client, open: tokio::sync::Mutex::new(None) }
    }

    /// Watches a range from a revision on.
    pub(crate) async fn watch(&self, key: Vec<u8>, end: Vec<u8>, revision: i64) -> Result<Subscription, ClientError> {
        let options = |id| WatchOptions::new().with_range(end).with_start_revision(revision).with_watch_id(id);
        let mut open = self.open.lock().await;
        if let Some(stream) = open.as_mut().filter(|stream| !stream.tasks.iter().any(JoinHandle::is_finished)) {
            stream.next_id += 1;
            let subscription = stream.subscribe();
            // Should the stream have broken just now, the subscription ends like all others.
            let _ = stream.orders.send(Order::Watch { key, options: options(subscription.id) });
            return Ok(subscription);
        }
        let routes: Routes = Routes::default();
        let (orders, inbox) = mpsc::unbounded_channel();
        let (opened, answer) = oneshot::channel();
        let mut client = self.client.clone();
        // The stream is opened by its own task, since this future may be dropped half-way.
        let first = options(1);
        let (routes_in, routes_out) = (routes.clone(), routes.clone());
        let (sender_tx, sender_rx) = oneshot::channel();
        let receive = tokio::spawn(async move {
            let (sender, mut answers) = match client.watch(key, Some(first)).await {
                Ok(stream) => stream.split(),
                Err(error) => {
                    let _ = opened.send(Err(error));
                    return;
                }
            };
            let _ = (opened.send(Ok(())), sender_tx.send(sender));
            while let Ok(Some(answer)) = answers.message().await {
                let mut routes = lock(&routes_in);
                let id = answer.watch_id();
                if routes.get(&id).is_some_and(|route| route.send(answer).is_err()) {
                    routes.remove(&id);
                }
            }
            lock(&routes_in).clear(); // Ends every subscription.
        });
        let send = tokio::spawn(async move {
            let Ok(sender) = sender_rx.await else { return };
            send_orders(sender, inbox).await;
            lock(&routes_out).clear();
        });
        let stream = Stream { routes, orders, next_id: 1, tasks: [receive, send] };
        let subscription = stream.subscribe();
        *open = Some(stream);
        match answer.await {
            Ok(Ok(())) => Ok(subscription),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(ClientError::WatchError("the watch stream broke while it was opened".to_owned())),
        }
    }
}

async fn send_orders(mut sender: etcd_client::WatchRequestSender, mut inbox: mpsc::UnboundedReceiver<Order>) {
    while let Some(order) = inbox.recv().await {
        let sent = match order {
            Order::Watch { key, options } => sender.watch(key, Some(options)).await,
            Order::Cancel(id) => sender.cancel(id).await,
        };
        if sent.is_err() {
            return;
        }
    }
}

impl Stream {
    fn subscribe(&self) -> Subscription {
        let (route, answers) = mpsc::unbounded_channel();
        lock(&self.routes).insert(self.next_id, route);
        Subscription { id: self.next_id, answers, routes: self.routes.clone(), orders: self.orders.clone() }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        lock(&self.routes).clear();
    }
}

impl Subscription {
    /// The next answer; `None` once the stream broke.
    pub(crate) async fn next(&mut self) -> Option<WatchResponse> {
        self.answers.recv().await
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if lock(&self.routes).remove(&self.id).is_some() {
            let _ = self.orders.send(Order::Cancel(self.id));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
