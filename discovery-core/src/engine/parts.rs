//! A full set on its way: what its parts say, until it is whole.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::Arc;

use super::decoding::Share;
use super::instances::Entry;
use crate::Instance;

#[derive(Default)]
pub(super) struct Parts {
    /// Those that are not understood yet, in their order.
    shares: VecDeque<Share>,
    entries: HashMap<String, (u64, Entry)>,
    /// The instances that are not known as they are, each with the hash of its record.
    instances: Vec<(u64, Arc<Instance>)>,
    /// Whether a record cannot be read that is not known as such.
    unread: bool,
    /// Whether a key was given again or taken back, so that not all instances stand any more.
    overtaken: bool,
}

/// A set that is whole.
pub(super) struct Whole {
    pub(super) entries: HashMap<String, (u64, Entry)>,
    pub(super) instances: Vec<Arc<Instance>>,
    pub(super) unread: bool,
}

impl Parts {
    /// Whether nothing waits to be understood.
    pub(super) fn is_settled(&self) -> bool {
        self.shares.is_empty()
    }

    pub(super) fn add(&mut self, shares: Vec<Share>) {
        self.shares.extend(shares);
    }

    /// The next share, if it is understood. One that no other thread was given is decoded here as soon as others wait behind it.
    pub(super) fn next_done(&mut self) -> Option<Share> {
        let first = self.shares.front()?;
        if self.shares.len() > 1 && !first.is_given() {
            first.help();
        }
        if first.is_done() { self.shares.pop_front() } else { None }
    }

    /// The next share. All are decoded first, beginning with the last, as other threads begin with the first.
    pub(super) fn next(&mut self) -> Option<Share> {
        self.shares.iter().rev().for_each(Share::help);
        let waiting = self.shares.iter().map(Share::len).sum();
        self.entries.reserve(waiting);
        self.instances.reserve(waiting);
        self.shares.pop_front()
    }

    /// The revision of a key's record, if there is one.
    pub(super) fn revision(&self, key: &str) -> Option<u64> {
        self.entries.get(key).map(|(revision, _)| *revision)
    }

    /// Takes in what a record says. Of a key that is given twice the later record counts.
    pub(super) fn put(&mut self, key: String, revision: u64, entry: Entry, instance: Option<Arc<Instance>>) {
        self.instances.extend(instance.map(|instance| (entry.hash, instance)));
        self.overtaken |= self.entries.insert(key, (revision, entry)).is_some();
    }

    /// Hears of a record that cannot be read.
    pub(super) fn miss(&mut self) {
        self.unread = true;
    }

    pub(super) fn remove(&mut self, key: &str) {
        self.overtaken |= self.entries.remove(key).is_some();
    }

    /// Everything, once it is understood.
    pub(super) fn finish(&mut self) -> Whole {
        let Self { entries, mut instances, unread, overtaken, .. } = mem::take(self);
        if overtaken {
            let readable = entries.values().filter(|(_, entry)| entry.readable);
            let stands: HashMap<_, _> =
                readable.filter_map(|(_, entry)| Some((entry.id.as_deref()?, entry.hash))).collect();
            instances.retain(|(hash, instance)| stands.get(instance.id()) == Some(hash));
        }
        Whole { entries, instances: instances.into_iter().map(|(_, instance)| instance).collect(), unread }
    }
}
