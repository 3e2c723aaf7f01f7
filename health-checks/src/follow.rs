//! Keeps the board in step with the watch.

use std::sync::Arc;

use discovery_core::{Change, Endpoint, Instance, Snapshot, Watch};

use crate::board::Board;
use crate::round::{Subject, go_round};
use crate::{Check, CheckerOptions};

/// Starts and ends checks as instances come and go. Once the backend is closed no set will come, and the last one is checked on, as
/// balancers go on picking from it.
pub(crate) async fn follow(mut watch: Watch, check: Arc<dyn Check>, options: CheckerOptions, board: Arc<Board>) {
    let mut before: Option<Arc<Snapshot>> = None;
    let enter = |instance: &Instance| {
        let endpoint = target(instance, &*check, &options).cloned();
        board.enter(instance.id(), endpoint.clone(), |number| {
            let subject = Subject { id: instance.id().into(), number, endpoint: endpoint? };
            Some(tokio::spawn(go_round(subject, check.clone(), options.clone(), board.clone())).abort_handle())
        });
    };
    while let Some(snapshot) = watch.changed().await {
        let changes = match &before {
            Some(before) => snapshot.changes_since(before),
            None => snapshot.instances().iter().map(|instance| Change::Added(instance.clone())).collect(),
        };
        for change in changes {
            match change {
                Change::Added(instance) => enter(&instance),
                // What was found is said of an address; it stands while that does, whatever else changes.
                Change::Modified(then, now) => {
                    if target(&then, &*check, &options) != target(&now, &*check, &options) {
                        enter(&now);
                    }
                }
                Change::Removed(instance) => board.leave(instance.id()),
            }
        }
        before = Some(snapshot);
    }
}

/// The endpoint that is checked.
fn target<'a>(instance: &'a Instance, check: &dyn Check, options: &CheckerOptions) -> Option<&'a Endpoint> {
    match &options.schemes {
        Some(schemes) => instance.endpoint(&schemes.iter().map(|scheme| &**scheme).collect::<Vec<_>>()),
        None => instance.endpoint(check.schemes()),
    }
}
