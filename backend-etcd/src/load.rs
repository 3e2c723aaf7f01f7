//! Reading a scope: in pages at one revision, or as a summary.

use std::mem;
use std::time::Duration;

use discovery_core::store::{Digest, RawRecord, Sink};
use discovery_core::{Error, ErrorKind, Result};
use etcd_client::{Client, GetOptions};
use futures_util::future::join;
use tokio::time::timeout;

use crate::connection::MAX_ANSWER;
use crate::error::{classify, is_answer_too_large};

/// Records in the first page, from which the size of the others follows. A thousand of the largest would be 1 GiB at the server.
const FIRST_PAGE: i64 = 200;
/// Bytes that a further page aims at if no record is larger than those so far: few pages, as the server counts the rest of the range for
/// each.
const PAGE_BYTES: usize = 4 * 1024 * 1024;
/// Records in a page at most, however small.
const MAX_PAGE: usize = 20_000;

/// Reads everything under a prefix at one revision, however large it is, and answers the revision. Each page may take as long as a
/// request may.
pub(crate) async fn load(
    client: &Client,
    prefix: &str,
    values: bool,
    patience: Duration,
    sink: &dyn Sink,
) -> Result<i64> {
    let mut kv = client.kv_client().max_decoding_message_size(MAX_ANSWER);
    let end = range_end(prefix);
    let (mut from, mut revision, mut page, mut largest) = (prefix.as_bytes().to_vec(), 0, FIRST_PAGE, 1);
    let mut records = Vec::new();
    loop {
        let mut options = GetOptions::new().with_range(end.clone()).with_limit(page).with_revision(revision);
        if revision > 0 {
            // The member that answered has the revision, so nobody else has to be asked.
            options = options.with_serializable();
        }
        if !values {
            options = options.with_keys_only();
        }
        // Asked for first, so that the former page is understood meanwhile.
        let asked = timeout(patience, kv.get(from.clone(), Some(options)));
        let (answer, ()) = join(asked, async { sink.part(mem::take(&mut records)) }).await;
        let mut answer = match answer {
            Err(_) => return Err(silent(prefix, patience)),
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) if page > 1 && is_answer_too_large(&error) => {
                page /= 2;
                continue;
            }
            Ok(Err(error)) => return Err(classify(error, "read", prefix)),
        };
        let header = answer.header().map_or(0, etcd_client::ResponseHeader::revision);
        if revision == 0 {
            if header == 0 {
                return Err(Error::new(ErrorKind::Internal, "read", prefix, "the answer has no revision"));
            }
            revision = header;
        }
        let more = answer.more();
        for record in answer.take_kvs() {
            largest = largest.max(record.key().len() + record.value().len());
            let at = record.mod_revision().unsigned_abs();
            let (key, value) = record.into_key_value();
            from.clone_from(&key);
            records.push(RawRecord { key: text(key), revision: at, value });
        }
        if !more {
            sink.part(records);
            return Ok(revision);
        }
        page = i64::try_from((PAGE_BYTES / largest).clamp(1, MAX_PAGE)).unwrap_or(FIRST_PAGE);
        // The next page begins right behind the last key.
        from.push(0);
    }
}

/// The error of a request that the server took and did not answer.
pub(crate) fn silent(prefix: &str, patience: Duration) -> Error {
    Error::new(ErrorKind::DeadlineExceeded, "read", prefix, format!("no answer within {patience:?}"))
}

/// Counts what is under a prefix and lists the keys that changed after a revision; no value is transferred.
pub(crate) async fn digest(client: &Client, prefix: &str, since: u64) -> Result<Digest> {
    let from = i64::try_from(since).unwrap_or(i64::MAX).saturating_add(1);
    let options = GetOptions::new().with_range(range_end(prefix)).with_keys_only().with_min_mod_revision(from);
    let mut kv = client.kv_client().max_decoding_message_size(MAX_ANSWER);
    let mut answer = kv.get(prefix, Some(options)).await.map_err(|e| classify(e, "count", prefix))?;
    let changed = answer.take_kvs().into_iter().map(|record| {
        let at = record.mod_revision().unsigned_abs();
        (text(record.into_key_value().0), at)
    });
    Ok(Digest {
        changed: changed.collect(),
        revision: answer.header().map_or(0, |header| header.revision().unsigned_abs()),
        // The count is that of the whole range, whatever the answer was narrowed to.
        count: usize::try_from(answer.count()).unwrap_or(0),
    })
}

/// The first key behind all keys with this prefix. Prefixes end with `/`, so the last byte can always be raised.
pub(crate) fn range_end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0] // etcd's way to say "to the end".
}

/// Keys of this layout are ASCII; any other is written so that no two become the same text.
pub(crate) fn text(key: Vec<u8>) -> String {
    String::from_utf8(key).unwrap_or_else(|error| error.as_bytes().escape_ascii().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w11_a_range_ends_with_its_separator() {
        assert_eq!(range_end("/discovery/pay/"), b"/discovery/pay0");
        assert_eq!(range_end("\u{7f}"), b"\x80");
    }
}
