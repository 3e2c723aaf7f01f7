//! Writing and removing records, guarded by who owns them.

use std::iter;

use discovery_core::store::{Lease, Owner, Stamps, Written};
use discovery_core::{Key, KeySpace, Result};
use etcd_client::{
    Client, Compare, CompareOp, Error as ClientError, GetOptions, GetResponse, KeyValue, PutOptions, ResponseHeader,
    Txn, TxnOp, TxnOpResponse,
};

use crate::error::{classify, is_lease_lost};

/// A takeover that lost this many races in a row is reported as unavailable, and tried again by the engine.
const RACES: usize = 3;

/// Writes a record on a lease: over anything if there is no previous owner, else only over what is absent, nobody's, or its own, and
/// was not taken from it (R6).
pub(crate) async fn write(
    client: &Client,
    space: &KeySpace,
    stamps: &Stamps,
    lease: &Lease,
    key: &Key,
    value: &[u8],
    previous: Option<&Owner>,
) -> Result<Written> {
    let path = space.key(key);
    stamps.forget(key);
    let put = || TxnOp::put(path.as_str(), value, Some(PutOptions::new().with_lease(id(lease))));
    let written = match previous {
        None => take_over(client, space, lease, key, put).await.map(Put::Stands),
        Some(owner) => write_own(client, space, lease, key, owner, put).await,
    };
    match written {
        Ok(Put::Stands(revision)) => {
            stamps.wrote(key, revision);
            Ok(Written::Done(Owner { lease: lease.clone(), mark: "".into() }))
        }
        Ok(Put::Refused(holder)) => Ok(Written::Superseded(holder)),
        Err(error) if is_lease_lost(&error) => Ok(Written::LeaseLost),
        Err(error) => Err(classify(error, "write", &path)),
    }
}

/// What came of a write.
enum Put {
    /// It stands at this revision.
    Stands(u64),
    /// Somebody newer owns the record: the lease on which it hangs, if it still stands.
    Refused(Option<u64>),
}

/// One round trip where nothing stands. Otherwise a second one writes the record together with a mark on the former owner's lease.
async fn take_over(
    client: &Client,
    space: &KeySpace,
    lease: &Lease,
    key: &Key,
    put: impl Fn() -> TxnOp,
) -> Result<u64, ClientError> {
    let path = space.key(key);
    let unmark = || unmark(space, key, lease);
    for _ in 0..RACES {
        let first = Txn::new()
            .when([Compare::version(path.as_str(), CompareOp::Equal, 0)])
            .and_then([put(), unmark()])
            .or_else([get_holder(&path)]);
        let answer = client.kv_client().txn(first).await?;
        let holder = match answer.op_responses().into_iter().next() {
            Some(TxnOpResponse::Get(found)) => holder(&found),
            _ => return Ok(revision(answer.header())),
        };
        let mut operations = vec![put(), unmark()];
        if holder != 0 && holder != id(lease) {
            let mark = mark(space, key, holder);
            operations.push(TxnOp::put(mark, Vec::new(), Some(PutOptions::new().with_lease(holder))));
        }
        let second = Txn::new().when([Compare::lease(path.as_str(), CompareOp::Equal, holder)]).and_then(operations);
        match client.kv_client().txn(second).await {
            Ok(answer) if answer.succeeded() => return Ok(revision(answer.header())),
            // Somebody else was faster.
            Ok(_) => {}
            // The former owner's lease has just ended, and its record with it; if it is our own, the next round says so.
            Err(error) if is_lease_lost(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Err(ClientError::WatchError("others write the same key all the time".to_owned()))
}

/// A key that does not exist counts as one without a lease. An "or" of comparisons is a chain of else branches.
async fn write_own(
    client: &Client,
    space: &KeySpace,
    lease: &Lease,
    key: &Key,
    owner: &Owner,
    put: impl Fn() -> TxnOp,
) -> Result<Put, ClientError> {
    let path = space.key(key);
    let moves = lease.id != owner.lease.id;
    let mut holders = vec![id(lease), id(&owner.lease), 0];
    holders.dedup();
    let chain = holders.into_iter().rev().fold(Txn::new().and_then([get_holder(&path)]), |otherwise, holder| {
        Txn::new()
            .when([
                Compare::lease(path.as_str(), CompareOp::Equal, holder),
                Compare::version(mark(space, key, id(&owner.lease)), CompareOp::Equal, 0),
            ])
            .and_then(iter::once(put()).chain(moves.then(|| unmark(space, key, lease))).collect::<Vec<_>>())
            .or_else([TxnOp::txn(otherwise)])
    });
    let answer = client.kv_client().txn(chain).await?;
    Ok(refused(&answer.op_responses()).unwrap_or_else(|| Put::Stands(revision(answer.header()))))
}

fn get_holder(path: &str) -> TxnOp {
    TxnOp::get(path, Some(GetOptions::new().with_keys_only()))
}

/// The lease of the record that was found; 0 for none.
fn holder(found: &GetResponse) -> i64 {
    found.kvs().first().map_or(0, KeyValue::lease)
}

/// The revision of a transaction, which is that of everything it wrote.
pub(crate) fn revision(header: Option<&ResponseHeader>) -> u64 {
    header.map_or(0, |header| header.revision().unsigned_abs())
}

/// Where it is remembered that a lease lost a record, under the prefix, so that the same rights suffice. `%` alone is no service.
fn mark(space: &KeySpace, key: &Key, lease: i64) -> String {
    let record = space.key(key);
    format!("{}%/{lease:x}/{}", space.root(), record.strip_prefix(&space.root()).unwrap_or(&record))
}

/// Forgets that the lease lost the record: it is being written on it now.
fn unmark(space: &KeySpace, key: &Key, lease: &Lease) -> TxnOp {
    TxnOp::delete(mark(space, key, id(lease)), None)
}

/// Who holds the record, if the innermost branch asked instead of writing.
fn refused(answers: &[TxnOpResponse]) -> Option<Put> {
    answers.iter().find_map(|answer| match answer {
        TxnOpResponse::Get(found) => {
            Some(Put::Refused(Some(holder(found).cast_unsigned()).filter(|lease| *lease != 0)))
        }
        TxnOpResponse::Txn(inner) => refused(&inner.op_responses()),
        _ => None,
    })
}

/// Removes a record if it still hangs on its owner's lease, or on none.
pub(crate) async fn remove(client: &Client, key: &str, owner: &Owner) -> Result<()> {
    let if_on = |lease, otherwise| {
        Txn::new()
            .when([Compare::lease(key, CompareOp::Equal, lease)])
            .and_then([TxnOp::delete(key, None)])
            .or_else([TxnOp::txn(otherwise)])
    };
    let transaction = if_on(id(&owner.lease), if_on(0, Txn::new()));
    client.kv_client().txn(transaction).await.map(drop).map_err(|error| classify(error, "remove", key))
}

/// etcd's lease ids are signed on the wire.
pub(crate) fn id(lease: &Lease) -> i64 {
    lease.id.cast_signed()
}
