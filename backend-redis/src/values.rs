//! Reading the values of records, many in one request.

use discovery_core::Result;
use futures_util::future::try_join_all;

use crate::live::Live;
use crate::notice::Id;

/// Records in the first request, from which the weight of the others is guessed, and at most in any.
const FEW: usize = 50;
const MANY: usize = 500;
/// What the values in one request may weigh, if they are as heavy as the heaviest so far.
const WEIGHT: usize = 1024 * 1024;
/// Requests under way at once.
const WINDOW: usize = 4;

/// Reads values, and learns from each request how heavy the next may be.
#[derive(Default)]
pub(crate) struct Reader {
    /// The heaviest value so far; `None` before the first request.
    heaviest: Option<usize>,
}

impl Reader {
    /// The values of records in the order of their ids; `None` for one that is gone.
    pub(crate) async fn read(&mut self, live: &Live, stem: &str, ids: &[Id]) -> Result<Vec<Option<Vec<u8>>>> {
        let mut values = Vec::with_capacity(ids.len());
        while values.len() < ids.len() {
            let (each, window) = match self.heaviest {
                None => (FEW, 1),
                Some(heaviest) => ((WEIGHT / heaviest.max(1)).clamp(1, MANY), WINDOW),
            };
            let requests = ids[values.len()..].chunks(each).take(window).map(|some| live.values(stem, some));
            for read in try_join_all(requests).await? {
                let heaviest = read.iter().flatten().map(Vec::len).max().unwrap_or(0);
                self.heaviest = self.heaviest.max(Some(heaviest));
                values.extend(read);
            }
        }
        Ok(values)
    }
}
