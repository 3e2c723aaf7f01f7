//! Notifications: one connection carries those of all watches, and here each finds its watch.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{PushInfo, PushKind, Value};
use tokio::sync::mpsc;

/// Who listens to which channel on one connection.
#[derive(Default)]
pub(crate) struct Pushes {
    routes: Mutex<Routes>,
}

#[derive(Default)]
struct Routes {
    /// Set once the connection is gone: nothing will ever arrive any more.
    broken: bool,
    next: u64,
    /// By channel: the number of the listener, and where its messages go.
    open: HashMap<String, (u64, mpsc::UnboundedSender<Vec<u8>>)>,
    /// Channels that were left and that the server still sends.
    left: Vec<String>,
}

impl Routes {
    fn end(&mut self) {
        self.broken = true;
        self.open.clear();
    }
}

/// Where the messages of one channel arrive. Its end is the end of continuity.
pub(crate) struct Inbox {
    channel: String,
    number: u64,
    messages: mpsc::UnboundedReceiver<Vec<u8>>,
    pushes: Arc<Pushes>,
}

impl Pushes {
    /// Takes what the connection received; called by the task that reads it, so it must not wait.
    pub(crate) fn take(&self, push: PushInfo) {
        let mut routes = self.lock();
        match push.kind {
            PushKind::Message | PushKind::SMessage => {
                let mut data = push.data.into_iter();
                let (Some(channel), Some(Value::BulkString(message))) = (data.next().and_then(text), data.next())
                else {
                    return;
                };
                if let Some((_, route)) = routes.open.get(&channel) {
                    // A listener that is just going away needs no message.
                    let _ = route.send(message);
                }
            }
            // Nobody leaves a channel that somebody listens to, so its slot moved to another server of the Cluster.
            PushKind::Unsubscribe | PushKind::SUnsubscribe => {
                if let Some(channel) = push.data.into_iter().next().and_then(text) {
                    routes.open.remove(&channel);
                }
            }
            PushKind::Disconnection => routes.end(),
            _ => {}
        }
    }

    /// Ends all inboxes: nothing will arrive any more.
    pub(crate) fn end(&self) {
        self.lock().end();
    }

    /// Opens an inbox; `None` once the connection is gone. A former listener's inbox on the same channel ends.
    pub(crate) fn listen(self: &Arc<Self>, channel: &str) -> Option<Inbox> {
        let mut routes = self.lock();
        if routes.broken {
            return None;
        }
        routes.next += 1;
        let (number, (route, messages)) = (routes.next, mpsc::unbounded_channel());
        routes.open.insert(channel.to_owned(), (number, route));
        Some(Inbox { channel: channel.to_owned(), number, messages, pushes: self.clone() })
    }

    /// The channels that nobody listens to any more and the server still sends. The caller keeps others from listening meanwhile.
    pub(crate) fn take_left(&self) -> Vec<String> {
        let mut routes = self.lock();
        let left = std::mem::take(&mut routes.left);
        left.into_iter().filter(|channel| !routes.open.contains_key(channel)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Routes> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inbox {
    /// The next message; `None` once continuity is lost.
    pub(crate) async fn next(&mut self) -> Option<Vec<u8>> {
        self.messages.recv().await
    }

    /// A message that has arrived already.
    pub(crate) fn ready(&mut self) -> Option<Vec<u8>> {
        self.messages.try_recv().ok()
    }

    /// Gives the channel up; answers whether nobody listens to it any more.
    pub(crate) fn close(&self) -> bool {
        let mut routes = self.pushes.lock();
        let own = routes.open.get(&self.channel).is_some_and(|(number, _)| *number == self.number);
        if own {
            routes.open.remove(&self.channel);
            routes.left.push(self.channel.clone());
        }
        own
    }
}

fn text(value: Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(kind: PushKind, words: &[&str]) -> PushInfo {
        PushInfo { kind, data: words.iter().map(|word| Value::BulkString(word.as_bytes().to_vec())).collect() }
    }

    #[tokio::test]
    async fn a_message_reaches_its_channel_and_an_end_ends_it() {
        let pushes = Arc::new(Pushes::default());
        let (mut a, mut b) = (pushes.listen("a").unwrap(), pushes.listen("b").unwrap());
        pushes.take(push(PushKind::Message, &["a", "1"]));
        pushes.take(push(PushKind::Message, &["c", "2"]));
        pushes.take(push(PushKind::Message, &["b"]));
        assert_eq!((a.ready(), b.ready()), (Some(b"1".to_vec()), None));
        pushes.take(push(PushKind::SUnsubscribe, &["a"]));
        assert_eq!(a.next().await, None);
        let again = pushes.listen("a").unwrap();
        assert!(!a.close() && pushes.take_left().is_empty(), "a former listener took the channel away");
        assert!(again.close());
        let third = pushes.listen("a").unwrap();
        assert!(pushes.take_left().is_empty(), "somebody listens again");
        assert!(third.close());
        assert_eq!(pushes.take_left(), ["a"]);
        pushes.take(push(PushKind::Disconnection, &[]));
        assert_eq!(b.next().await, None);
        assert!(pushes.listen("b").is_none());
    }
}
