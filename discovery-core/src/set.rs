//! A sorted, persistent set of instances: sharing it is free, and a change costs the change's size.
//!
//! The instances stand in chunks of bounded length. A change copies one chunk and the list of chunks, never the set;
//! two sets that share chunks are compared by skipping them.

use std::sync::Arc;

use crate::Instance;

/// Splitting above this bounds what one change copies; 10,000 instances make about 150 chunks, so both levels stay small.
const MAX_CHUNK: usize = 128;

type Chunk = Arc<Vec<Arc<Instance>>>;

/// The instances of one service, sorted by id, each id once.
#[derive(Debug, Clone, Default)]
pub struct InstanceSet {
    /// No chunk is empty, and ids rise within and across chunks.
    chunks: Arc<Vec<Chunk>>,
    len: usize,
}

/// One difference between two sets.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// An instance that was not there before.
    Added(Arc<Instance>),
    /// An instance whose record changed: before, and now.
    Modified(Arc<Instance>, Arc<Instance>),
    /// An instance that is gone.
    Removed(Arc<Instance>),
}

impl InstanceSet {
    /// How many instances there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All instances in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Instance>> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    /// The instance with this id.
    pub fn get(&self, id: &str) -> Option<&Arc<Instance>> {
        let (chunk, at) = self.locate(id);
        self.chunks.get(chunk)?.get(at.ok()?)
    }

    /// Puts an instance in, and returns the one that it replaced.
    pub(crate) fn insert(&mut self, instance: Arc<Instance>) -> Option<Arc<Instance>> {
        let (index, at) = self.locate(instance.id());
        let chunks = Arc::make_mut(&mut self.chunks);
        let Some(chunk) = chunks.get_mut(index) else {
            chunks.push(Arc::new(vec![instance]));
            self.len += 1;
            return None;
        };
        let items = Arc::make_mut(chunk);
        match at {
            Ok(at) => Some(std::mem::replace(&mut items[at], instance)),
            Err(at) => {
                items.insert(at, instance);
                self.len += 1;
                if items.len() > MAX_CHUNK {
                    let tail = items.split_off(items.len() / 2);
                    chunks.insert(index + 1, Arc::new(tail));
                }
                None
            }
        }
    }

    /// Takes an instance out.
    pub(crate) fn remove(&mut self, id: &str) -> Option<Arc<Instance>> {
        let (index, at) = self.locate(id);
        let at = at.ok()?;
        let chunks = Arc::make_mut(&mut self.chunks);
        let items = Arc::make_mut(chunks.get_mut(index)?);
        let removed = items.remove(at);
        self.len -= 1;
        if items.is_empty() {
            chunks.remove(index);
        }
        Some(removed)
    }

    /// The differences that lead from `before` to `self`, in the order of ids.
    pub fn changes_since(&self, before: &Self) -> Vec<Change> {
        let mut changes = Vec::new();
        let (mut old, mut new) = (Cursor::new(before), Cursor::new(self));
        loop {
            Cursor::skip_shared(&mut old, &mut new);
            match (old.item(), new.item()) {
                (None, None) => return changes,
                (Some(gone), None) => {
                    changes.push(Change::Removed(gone.clone()));
                    old.step();
                }
                (None, Some(come)) => {
                    changes.push(Change::Added(come.clone()));
                    new.step();
                }
                (Some(a), Some(b)) => match a.id().cmp(b.id()) {
                    std::cmp::Ordering::Less => {
                        changes.push(Change::Removed(a.clone()));
                        old.step();
                    }
                    std::cmp::Ordering::Greater => {
                        changes.push(Change::Added(b.clone()));
                        new.step();
                    }
                    std::cmp::Ordering::Equal => {
                        if !Arc::ptr_eq(a, b) && a != b {
                            changes.push(Change::Modified(a.clone(), b.clone()));
                        }
                        old.step();
                        new.step();
                    }
                },
            }
        }
    }

    /// The chunk where `id` is or belongs, and its place in it.
    fn locate(&self, id: &str) -> (usize, Result<usize, usize>) {
        let after = self.chunks.partition_point(|chunk| chunk.first().is_some_and(|i| i.id() <= id));
        let index = after.saturating_sub(1);
        let at = match self.chunks.get(index) {
            Some(chunk) => chunk.binary_search_by(|i| i.id().cmp(id)),
            None => Err(0),
        };
        (index, at)
    }
}

impl PartialEq for InstanceSet {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().zip(other.iter()).all(|(a, b)| Arc::ptr_eq(a, b) || a == b)
    }
}

impl FromIterator<Arc<Instance>> for InstanceSet {
    fn from_iter<I: IntoIterator<Item = Arc<Instance>>>(iter: I) -> Self {
        let mut items: Vec<_> = iter.into_iter().collect();
        items.sort_by(|a, b| a.id().cmp(b.id()));
        // Of several with one id the last counts.
        items.dedup_by(|later, earlier| {
            let same = later.id() == earlier.id();
            if same {
                std::mem::swap(later, earlier);
            }
            same
        });
        let len = items.len();
        let (mut rest, mut chunks) = (items.into_iter(), Vec::with_capacity(len.div_ceil(MAX_CHUNK / 2)));
        while rest.len() > 0 {
            chunks.push(Arc::new(rest.by_ref().take(MAX_CHUNK / 2).collect()));
        }
        Self { chunks: Arc::new(chunks), len }
    }
}

struct Cursor<'a> {
    chunks: &'a [Chunk],
    chunk: usize,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn new(set: &'a InstanceSet) -> Self {
        Self { chunks: &set.chunks, chunk: 0, at: 0 }
    }

    fn item(&self) -> Option<&'a Arc<Instance>> {
        self.chunks.get(self.chunk)?.get(self.at)
    }

    fn step(&mut self) {
        self.at += 1;
        if self.chunks.get(self.chunk).is_some_and(|chunk| self.at >= chunk.len()) {
            self.chunk += 1;
            self.at = 0;
        }
    }

    /// Ids rise, so both cursors reach a shared chunk's first instance at the same time.
    fn skip_shared(a: &mut Self, b: &mut Self) {
        while a.at == 0 && b.at == 0 {
            match (a.chunks.get(a.chunk), b.chunks.get(b.chunk)) {
                (Some(x), Some(y)) if Arc::ptr_eq(x, y) => {
                    a.chunk += 1;
                    b.chunk += 1;
                }
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use proptest::prelude::*;

    fn instance(id: u16, weight: u32) -> Arc<Instance> {
        let builder = Instance::builder("s").id(format!("{id:05}")).endpoint("grpc://h:1").weight(weight);
        Arc::new(builder.started_at(std::time::UNIX_EPOCH).build().unwrap())
    }

    #[test]
    fn l03_a_change_copies_one_chunk() {
        let before: InstanceSet = (0..10_000).map(|i| instance(i, 1)).collect();
        let mut after = before.clone();
        after.insert(instance(5_000, 2));
        let shared = before.chunks.iter().zip(after.chunks.iter()).filter(|(a, b)| Arc::ptr_eq(a, b)).count();
        assert_eq!(shared, before.chunks.len() - 1);
        assert_eq!(after.changes_since(&before).len(), 1);
    }

    proptest! {
        #[test]
        fn it_behaves_like_a_map_and_its_differences_rebuild_it(
            first in proptest::collection::vec((0u16..400, any::<bool>(), 0u32..3), 0..600),
            second in proptest::collection::vec((0u16..400, any::<bool>(), 0u32..3), 0..100),
        ) {
            let (mut set, mut model) = (InstanceSet::default(), BTreeMap::new());
            let mut apply = |set: &mut InstanceSet, ops: &[(u16, bool, u32)]| {
                for (id, put, weight) in ops {
                    if *put {
                        set.insert(instance(*id, *weight));
                        model.insert(*id, *weight);
                    } else {
                        set.remove(&format!("{id:05}"));
                        model.remove(id);
                    }
                }
                let got: Vec<_> = set.iter().map(|i| (i.id().to_owned(), i.weight())).collect();
                let want: Vec<_> = model.iter().map(|(k, v)| (format!("{k:05}"), *v)).collect();
                assert_eq!(got, want);
                assert_eq!(set.len(), want.len());
            };
            apply(&mut set, &first);
            let before = set.clone();
            apply(&mut set, &second);
            let mut rebuilt = before.clone();
            for change in set.changes_since(&before) {
                match change {
                    Change::Added(i) | Change::Modified(_, i) => { rebuilt.insert(i); }
                    Change::Removed(i) => { rebuilt.remove(i.id()); }
                }
            }
            prop_assert!(rebuilt == set);
            prop_assert!(set.iter().all(|i| set.get(i.id()).is_some()));
            prop_assert!(set.chunks.iter().all(|c| !c.is_empty() && c.len() <= MAX_CHUNK));
        }
    }
}
