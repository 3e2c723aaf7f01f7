//! Reading the values of records, many in one request.
//!
//! Answers share their connection with notifications, and a server cuts off a subscriber for whom it has to keep much: 8 MB for a
//! minute, or 32 MB at once (`client-output-buffer-limit pubsub`). So nothing is asked for before its length is known, and what is
//! under way on one connection is bounded, however many sets are read at once.

use discovery_core::Result;
use discovery_core::store::Scope;
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};

use crate::live::Live;
use crate::load::PAGE;
use crate::notice::Id;

/// Records in one request at most, and what their values weigh together unless a single one weighs more.
const MANY: usize = 500;
const WEIGHT: usize = 1024 * 1024;
/// Requests of one set under way at once.
const WINDOW: usize = 4;
/// What the script tells of instead of a value above [`MAX_RECORD`](crate::MAX_RECORD), which is never read: no record, but something
/// that is counted and reported as one that cannot be read.
const TOO_LONG: &[u8] = b"longer than 1048576 bytes";

/// A record as it is listed.
struct Listed {
    id: Id,
    /// The version of its last change.
    revision: u64,
    /// How long its value is; 0 for one that is gone.
    length: usize,
}

impl Listed {
    fn is_too_long(&self) -> bool {
        self.length > crate::MAX_RECORD
    }
}

/// What a record was read as: its id, the version of its last change, and its value; `None` for one that is gone.
pub(crate) type Found = (Id, (u64, Option<Vec<u8>>));

/// Reads all records of a scope in pages. The next page is listed while values of the former ones are on their way.
pub(crate) async fn read(live: &Live, stem: &str, scope: &Scope) -> Result<Vec<Found>> {
    // Boxed, since the compiler cannot otherwise tell that what borrows may be sent.
    let pages = stream::try_unfold(Some(0), move |after| list(live, stem, scope, after).boxed()).boxed();
    let requests = pages.map_ok(|page| stream::iter(portions(page).into_iter().map(Ok))).try_flatten();
    let found = requests.map_ok(move |some| ask(live, stem, scope, some).boxed()).try_buffered(WINDOW).boxed();
    found.try_concat().await
}

/// Lists a page, beginning after a version, and says where the next one begins; nothing follows on `None`.
async fn list(
    live: &Live,
    stem: &str,
    scope: &Scope,
    after: Option<u64>,
) -> Result<Option<(Vec<Listed>, Option<u64>)>> {
    let Some(after) = after else { return Ok(None) };
    let page = live.changed(stem, after, PAGE).await?;
    // What changes between two pages moves to the end, so none is missed.
    let next = page.last().filter(|_| page.len() == PAGE).map(|(_, revision)| *revision);
    let lengths = match scope {
        Scope::Service(_) => live.lengths(stem, &page).await?,
        // Services have no values.
        Scope::Names => vec![0; page.len()],
    };
    let listed = page.into_iter().zip(lengths).map(|((id, revision), length)| Listed { id, revision, length });
    Ok(Some((listed.collect(), next)))
}

async fn ask(live: &Live, stem: &str, scope: &Scope, some: Vec<Listed>) -> Result<Vec<Found>> {
    let wanted: Vec<_> = some.iter().filter(|it| !it.is_too_long()).map(|it| &it.id).collect();
    let values = match scope {
        Scope::Service(_) if !wanted.is_empty() => live.values(stem, &wanted, weight(&some)).await?,
        Scope::Service(_) => Vec::new(),
        Scope::Names => vec![Some(Vec::new()); wanted.len()],
    };
    let mut values = values.into_iter();
    let found = some.into_iter().map(|it| {
        let value = if it.is_too_long() { Some(TOO_LONG.to_vec()) } else { values.next().flatten() };
        (it.id, (it.revision, value))
    });
    Ok(found.collect())
}

fn weight(some: &[Listed]) -> usize {
    some.iter().filter(|it| !it.is_too_long()).map(|it| it.length).sum()
}

/// Cuts a list into what one request may ask for.
fn portions(listed: Vec<Listed>) -> Vec<Vec<Listed>> {
    let (mut portions, mut sum) = (Vec::<Vec<_>>::new(), 0);
    for it in listed {
        let length = if it.is_too_long() { 0 } else { it.length };
        match portions.last_mut() {
            Some(last) if last.len() < MANY && sum + length <= WEIGHT => {
                sum += length;
                last.push(it);
            }
            _ => {
                sum = length;
                portions.push(vec![it]);
            }
        }
    }
    portions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(length: usize) -> Listed {
        Listed { id: b"a".to_vec(), revision: 1, length }
    }

    #[test]
    fn l04_no_request_weighs_more_than_a_mebibyte() {
        let mut all: Vec<_> = (0..50).map(|_| listed(200)).collect();
        all.extend((0..400).map(|_| listed(100_000)));
        all.extend([listed(crate::MAX_RECORD), listed(usize::MAX), listed(0)]);
        let count = all.len();
        let portions = portions(all);
        assert_eq!(portions.iter().map(Vec::len).sum::<usize>(), count);
        assert!(portions.iter().all(|some| weight(some) <= WEIGHT));
        assert!(portions.len() < 50, "{} requests", portions.len());
        let small: Vec<_> = (0..1_000).map(|_| listed(200)).collect();
        assert_eq!(super::portions(small).len(), 2);
    }
}
