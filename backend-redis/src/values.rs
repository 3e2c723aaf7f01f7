//! Reading the records of a scope: page by page, the values of many in one request and some requests at once.

use discovery_core::Result;
use discovery_core::store::Scope;
use futures_util::StreamExt;
use futures_util::future::try_join;
use futures_util::stream::FuturesOrdered;

use crate::node::{Listing, Reading};
use crate::notice::Id;

/// Ids in one request: as many as a server lists in a fraction of a millisecond.
const PAGE: usize = 2_500;
/// Records of the first request, from which the size of the others is estimated.
const SAMPLE: usize = 64;
/// Records in one request at most. More would gain next to nothing, and make the answer larger where all of a sudden they are heavy.
const MANY: usize = 256;
/// What a request is to weigh, as far as the former ones let expect it.
const WEIGHT: usize = 1024 * 1024;
/// Requests of one set under way at once.
const AHEAD: usize = 4;

/// Where records are given as they come: their ids and values, `None` for one that is gone.
pub(crate) type Take<'a> = &'a mut (dyn FnMut(Vec<(Id, Option<Vec<u8>>)>) + Send);

/// Reads all records of a scope, and returns the lowest and the highest version that it had meanwhile.
pub(crate) async fn read(reading: &Reading<'_>, scope: &Scope, take: Take<'_>) -> Result<(u64, u64)> {
    let mut listed = Some(reading.list(0, PAGE).await?);
    let (mut lowest, mut highest, mut largest) = (u64::MAX, 0, 0);
    while let Some(Listing { version, ids, next }) = listed {
        (lowest, highest) = (lowest.min(version), highest.max(version));
        let values = async {
            match scope {
                Scope::Service(_) => read_values(reading, ids, largest, &mut *take).await,
                // Services have no values.
                Scope::Names => {
                    take(ids.into_iter().map(|id| (id, Some(Vec::new()))).collect());
                    Ok(0)
                }
            }
        };
        let more = async {
            match next {
                Some(after) => reading.list(after, PAGE).await.map(Some),
                None => Ok(None),
            }
        };
        (largest, listed) = try_join(values, more).await?;
    }
    Ok((lowest, highest))
}

/// Reads values while those of former requests are understood. `largest` is the largest average so far of one request, 0 before the
/// first.
async fn read_values(reading: &Reading<'_>, ids: Vec<Id>, mut largest: usize, take: Take<'_>) -> Result<usize> {
    let (mut ids, mut requests) = (ids.into_iter(), FuturesOrdered::new());
    loop {
        let ahead = if largest == 0 { 1 } else { AHEAD };
        while requests.len() < ahead && ids.len() > 0 {
            let some: Vec<_> = ids.by_ref().take(portion(largest).min(reading.most_at_once())).collect();
            requests.push_back(async move { (reading.values(&some).await, some) });
        }
        let Some((values, some)) = requests.next().await else { return Ok(largest) };
        let values = values?;
        let weight: usize = values.iter().flatten().map(Vec::len).sum();
        largest = largest.max(weight / some.len().max(1)).max(1);
        take(some.into_iter().zip(values).collect());
    }
}

/// How many records a request asks for.
fn portion(largest: usize) -> usize {
    WEIGHT.checked_div(largest).map_or(SAMPLE, |records| records.clamp(1, MANY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l04_of_heavy_records_a_request_asks_for_fewer() {
        assert_eq!([0, 1, 200, 32_768, 100_000, 2_000_000].map(portion), [64, 256, 256, 32, 10, 1]);
    }
}
