//! Writing and removing records, guarded by who owns them.

use discovery_core::Result;
use discovery_core::store::{Lease, Owner, Written};
use etcd_client::{Client, Compare, CompareOp, PutOptions, Txn, TxnOp, TxnOpResponse};

use crate::error::{classify, is_lease_lost};

/// Writes a record on a lease: over anything if there is no previous owner, else only over what is absent, nobody's, or its own.
///
/// One round trip. A key that does not exist counts as one without a lease.
pub(crate) async fn write(
    client: &Client,
    lease: &Lease,
    key: &str,
    value: &[u8],
    previous: Option<&Owner>,
) -> Result<Written> {
    let put = || TxnOp::put(key, value, Some(PutOptions::new().with_lease(id(lease))));
    let transaction = match previous {
        None => Txn::new().and_then([put()]),
        Some(owner) => {
            let mut ours = vec![id(lease), id(&owner.lease), 0];
            ours.dedup();
            // An "or" of comparisons is a chain of else branches.
            ours.into_iter().rev().fold(Txn::new(), |otherwise, holder| {
                Txn::new()
                    .when([Compare::lease(key, CompareOp::Equal, holder)])
                    .and_then([put()])
                    .or_else([TxnOp::txn(otherwise)])
            })
        }
    };
    match client.kv_client().txn(transaction).await {
        Ok(answer) if has_put(&answer.op_responses()) => {
            Ok(Written::Done(Owner { lease: lease.clone(), mark: "".into() }))
        }
        Ok(_) => Ok(Written::Superseded),
        Err(error) if is_lease_lost(&error) => Ok(Written::LeaseLost),
        Err(error) => Err(classify(error, "write", key)),
    }
}

fn has_put(answers: &[TxnOpResponse]) -> bool {
    answers.iter().any(|answer| match answer {
        TxnOpResponse::Put(_) => true,
        TxnOpResponse::Txn(inner) => has_put(&inner.op_responses()),
        _ => false,
    })
}

/// Removes a record if it still hangs on its owner's lease.
pub(crate) async fn remove(client: &Client, key: &str, owner: &Owner) -> Result<()> {
    let transaction =
        Txn::new().when([Compare::lease(key, CompareOp::Equal, id(&owner.lease))]).and_then([TxnOp::delete(key, None)]);
    client.kv_client().txn(transaction).await.map(drop).map_err(|error| classify(error, "remove", key))
}

/// etcd's lease ids are signed on the wire.
pub(crate) fn id(lease: &Lease) -> i64 {
    lease.id.cast_signed()
}
