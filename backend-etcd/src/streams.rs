//! One watch stream for all subscriptions of a connection.
//!
//! etcd multiplexes watches over a stream by an id that the client chooses (since 3.4). One stream costs the server three goroutines
//! and us two tasks, however many services are watched. The tasks end with the last subscription's connection, or with the stream.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use etcd_client::{Error as ClientError, WatchClient, WatchOptions, WatchRequestSender, WatchResponse};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// Where the answers of each watch go; `None` once the stream has ended, so that nobody subscribes to silence.
type Routes = Arc<Mutex<Option<HashMap<i64, mpsc::UnboundedSender<WatchResponse>>>>>;

/// Ends every subscription when the task that holds it ends, however it does.
struct EndsRoutes(Routes);

impl Drop for EndsRoutes {
    fn drop(&mut self) {
        lock(&self.0).take();
    }
}

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
    tasks: Vec<JoinHandle<()>>,
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
        if let Some(stream) = open.as_mut() {
            stream.next_id += 1;
            if let Some(subscription) = stream.subscribe() {
                // Should the stream break just now, the subscription ends like all others.
                let _ = stream.orders.send(Order::Watch { key, options: options(subscription.id) });
                return Ok(subscription);
            }
        }
        let broken = || ClientError::WatchError("the watch stream broke while it was opened".to_owned());
        let routes: Routes = Arc::new(Mutex::new(Some(HashMap::new())));
        let (orders, inbox) = mpsc::unbounded_channel();
        let (opened, answer) = oneshot::channel();
        let tasks = [
            // The stream is opened by its own task, since this future may be dropped half-way.
            tokio::spawn(receive(self.client.clone(), key, options(1), EndsRoutes(routes.clone()), opened)),
        ];
        let stream = Stream { routes, orders, next_id: 1, tasks: tasks.into() };
        let subscription = stream.subscribe().ok_or_else(broken)?;
        let routes = stream.routes.clone();
        let stream = open.insert(stream);
        let sender = answer.await.map_err(|_| broken())??;
        stream.tasks.push(tokio::spawn(send_orders(sender, inbox, EndsRoutes(routes))));
        Ok(subscription)
    }
}

async fn receive(
    mut client: WatchClient,
    key: Vec<u8>,
    options: WatchOptions,
    routes: EndsRoutes,
    opened: oneshot::Sender<Result<WatchRequestSender, ClientError>>,
) {
    let mut answers = match client.watch(key, Some(options)).await {
        Ok(stream) => {
            let (sender, answers) = stream.split();
            if opened.send(Ok(sender)).is_err() {
                return;
            }
            answers
        }
        Err(error) => {
            let _ = opened.send(Err(error));
            return;
        }
    };
    while let Ok(Some(answer)) = answers.message().await {
        // A stream is bound to the token that it was opened with. Once that is refused every further watch is, under an id that names
        // none of them, and only a new stream helps.
        if answer.canceled() && (answer.watch_id() < 0 || answer.cancel_reason().contains("auth")) {
            return;
        }
        let id = answer.watch_id();
        if let Some(routes) = lock(&routes.0).as_mut()
            && routes.get(&id).is_some_and(|route| route.send(answer).is_err())
        {
            routes.remove(&id);
        }
    }
}

async fn send_orders(mut sender: WatchRequestSender, mut inbox: mpsc::UnboundedReceiver<Order>, _routes: EndsRoutes) {
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
    /// `None` if the stream has ended.
    fn subscribe(&self) -> Option<Subscription> {
        let (route, answers) = mpsc::unbounded_channel();
        lock(&self.routes).as_mut()?.insert(self.next_id, route);
        Some(Subscription { id: self.next_id, answers, routes: self.routes.clone(), orders: self.orders.clone() })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        lock(&self.routes).take();
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
        let removed = lock(&self.routes).as_mut().and_then(|routes| routes.remove(&self.id));
        if removed.is_some() {
            let _ = self.orders.send(Order::Cancel(self.id));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
