//! What the fuzz targets reach of this crate; built with `--cfg fuzzing` alone.

use std::collections::BTreeMap;

use discovery_core::store::RawChange;
use discovery_core::{Policy, RegistryUrl, Result};
use zookeeper_client::Stat;

use crate::load::Found;
use crate::members::Members;
use crate::roster::{Names, Roster};
use crate::tree::{SUPERSEDED, Tree, id_of, name_of};

/// Reads a URL as [`connect`](crate::connect) does, and dials nothing.
///
/// # Errors
/// As `connect`.
pub fn read_url(url: &RegistryUrl) -> Result<()> {
    let mut options = url.options();
    let policy = Policy::from_url(&mut options)?;
    crate::store(url, options, &policy).map(drop)
}

/// Reads the name of a node under a service.
pub fn read_name(name: &str) {
    let tree = Tree::new("/a/b", false, Vec::new()).expect("a root");
    let id = id_of(name);
    assert_eq!(id_of(&format!("{id}-0000000012")), if id.is_empty() { "-0000000012" } else { id });
    if let Some(key) = tree.parse(&format!("/a/b/pay/{id}")) {
        assert_eq!(name_of(&tree.record(&key)), id, "another name than the one that is written for {key}");
    }
}

/// Follows the nodes of a service: each step is a line of a digit, which says what is found, a time, and the node's name. What is told is
/// what is known.
pub fn follow_nodes(script: &str) {
    let mut members = Members::new("/a/b/pay".to_owned(), 0);
    let mut roster = Roster::new("/a/b".to_owned(), Names::new());
    let (mut told, mut listed) = (BTreeMap::new(), BTreeMap::new());
    for line in script.lines().take(100) {
        let (Some(what), Some(rest)) = (line.chars().next(), line.get(1..)) else { continue };
        let (at, name) = rest.split_once(' ').unwrap_or(("1", rest));
        let stat = stat(at.parse().unwrap_or(i64::MAX));
        let found = |what| match what {
            '0' => Found::Gone,
            '1' => Found::Parent,
            '2' => Found::Denied,
            '3' => Found::Superseded(stat.clone()),
            _ => Found::Record(SUPERSEDED.to_vec(), stat.clone()),
        };
        if what == '9' {
            members.differing(&[name.to_owned()], &[found('4')]);
            continue;
        }
        let (changes, missing) = members.apply(vec![(name.to_owned(), found(what))]);
        keep(&mut told, changes);
        // What counts again is read at once, as it is by whoever follows.
        let again = missing.into_iter().map(|name| (name, found('4'))).collect();
        keep(&mut told, members.apply(again).0);
        assert_eq!(told.len(), members.count(), "told {told:?}");
        let page = members.next_page(3);
        members.compare(&page, stat.pzxid);
        keep(&mut listed, roster.apply(vec![(format!("pay/{name}"), found(what))]));
        assert_eq!(listed.len(), roster.records().len(), "listed {listed:?}");
    }
}

fn keep(known: &mut BTreeMap<String, u64>, changes: Vec<RawChange>) {
    for change in changes {
        match change {
            RawChange::Put(record) => _ = known.insert(record.key, record.revision),
            RawChange::Delete(key, _) => _ = known.remove(&key),
        }
    }
}

fn stat(at: i64) -> Stat {
    Stat {
        czxid: at,
        mzxid: at,
        pzxid: at,
        ctime: 0,
        mtime: 0,
        version: 0,
        cversion: 0,
        aversion: 0,
        ephemeral_owner: 7,
        data_length: 1,
        num_children: 0,
    }
}
