//! Listening to the changes of a scope.

use std::sync::Arc;
use std::time::Duration;

use discovery_core::{Error, ErrorKind, Result};
use futures_util::future::join_all;
use redis::Value;
use tokio::time::timeout;

use super::Node;
use crate::layout::channel;
use crate::pushes::Inbox;

/// How long unsubscribing may take; what it leaves behind is unheard notifications until the connection ends.
const LEAVE_LIMIT: Duration = Duration::from_secs(3);

/// How changes are published and listened to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PubSub {
    /// To every subscriber of the server.
    Plain,
    /// To the subscribers of the channel's slot, on the server that has it.
    Sharded,
}

impl PubSub {
    pub(super) fn commands(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Plain => ("PUBLISH", "SUBSCRIBE", "UNSUBSCRIBE"),
            Self::Sharded => ("SPUBLISH", "SSUBSCRIBE", "SUNSUBSCRIBE"),
        }
    }
}

impl Node {
    /// Listens to the changes of a scope, and returns once the server has confirmed it.
    pub(crate) async fn subscribe(self: &Arc<Self>, stem: &str) -> Result<Subscription> {
        let _shared = self.gate.read().await;
        let channel = channel(stem);
        let Some(inbox) = self.pushes.listen(&channel) else {
            return Err(Error::new(ErrorKind::Unavailable, "watch", stem, "the connection broke"));
        };
        // Made first, so that a call that is given up leaves the channel.
        let subscription = Subscription { node: self.clone(), inbox };
        let (_, subscribe, _) = self.pubsub.commands();
        self.ask::<Value>(redis::cmd(subscribe).arg(channel))
            .await
            .map_err(|error| self.judge(error, "watch", stem))?;
        Ok(subscription)
    }

    /// Unsubscribes from what nobody listens to any more.
    async fn leave(&self) {
        let _alone = self.gate.write().await;
        let (_, _, unsubscribe) = self.pubsub.commands();
        let left = self.pushes.take_left();
        // A failure means that the connection is gone, and the subscriptions with it.
        join_all(left.iter().map(async |channel| {
            let _ = self.ask::<Value>(redis::cmd(unsubscribe).arg(channel)).await;
        }))
        .await;
    }
}

/// The changes of one scope; dropping it ends them.
pub(crate) struct Subscription {
    pub(crate) node: Arc<Node>,
    pub(crate) inbox: Inbox,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if !self.inbox.close() {
            return; // Somebody newer listens there.
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let node = Arc::downgrade(&self.node);
        runtime.spawn(async move {
            if let Some(node) = node.upgrade() {
                // A server that does not answer must not keep the connection open.
                let _ = timeout(LEAVE_LIMIT, node.leave()).await;
            }
        });
    }
}
