//! The tree: where records are, how their nodes are named, and the parents that hold them.
//!
//! A record of ours is `{root}/{service}/{id}-{sequence}` with ZooKeeper's ten digits behind the id, one that an operator put by hand is
//! `{root}/{service}/{id}`. The name alone tells them apart: one hyphen and ten digits at the end are always a sequence. An id that ends
//! like that can be put by hand with any sequence behind it.
//!
//! A node of a session whose data are the word `superseded` is no record: whoever took the id over left the word there for its owner, and it
//! goes with the owner's session.

use std::borrow::Cow;

use discovery_core::store::Scope;
use discovery_core::{Error, ErrorKind, Key, KeySpace, Result};
use zookeeper_client::{Acl, Acls, AuthId, CreateMode, Error as ClientError, Permission, Stat};

use crate::connection::Live;

/// The data of a node whose owner was superseded.
pub(crate) const SUPERSEDED: &[u8] = b"superseded";

pub(crate) struct Tree {
    space: KeySpace,
    /// The rights of what is created.
    acls: Vec<Acl>,
}

impl Tree {
    /// Makes the tree of a prefix. With a user, that user has all rights on what is created, and others those that are listed.
    pub(crate) fn new(prefix: &str, authenticated: bool, others: Vec<Acl>) -> Result<Self> {
        let space = KeySpace::new(prefix)?;
        // What the server and the client refuse inside of paths, beyond control characters.
        let refused = |c: char| matches!(u32::from(c), 0xd800..=0xf8ff | 0xfff0..);
        if let Some(c) = space.prefix().chars().find(|c| refused(*c)) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "use",
                format!("prefix {prefix:?}"),
                format!("ZooKeeper cannot hold the character {c:?}"),
            ));
        }
        let creator = if authenticated { AuthId::authed() } else { AuthId::anyone() };
        let acls = [vec![Acl::new(Permission::ALL, creator)], others].concat();
        Ok(Self { space, acls })
    }

    pub(crate) fn root(&self) -> &str {
        self.space.prefix()
    }

    pub(crate) fn parse(&self, key: &str) -> Option<Key> {
        self.space.parse(key)
    }

    pub(crate) fn split<'a>(&self, key: &'a str) -> Option<(Cow<'a, str>, Cow<'a, str>)> {
        self.space.split(key)
    }

    /// The node that holds a service's records.
    pub(crate) fn service(&self, service: &str) -> String {
        let mut path = self.space.service_prefix(service);
        path.pop(); // The separator that ends it.
        path
    }

    /// The node under which a scope lies.
    pub(crate) fn base(&self, scope: &Scope) -> String {
        match scope {
            Scope::Service(service) => self.service(service),
            Scope::Names => self.root().to_owned(),
        }
    }

    /// The node of a record that was put by hand; with a hyphen and a sequence behind it, one of ours.
    pub(crate) fn record(&self, key: &Key) -> String {
        self.space.key(key)
    }

    /// The rights of the records that are created.
    pub(crate) fn acls(&self) -> Acls<'_> {
        Acls::new(&self.acls)
    }

    /// Creates the parents of a service's records that are missing. As containers the server removes them when they are empty.
    pub(crate) async fn make_parents(&self, live: &Live, service: &str) -> Result<(), ClientError> {
        let (client, persistent) = (&live.client, CreateMode::Persistent.with_acls(self.acls()));
        if !live.server.has_containers() {
            return client.mkdir(service, &persistent).await;
        }
        match client.mkdir(service, &CreateMode::Container.with_acls(self.acls())).await {
            // Containers came with 3.5.3.
            Err(ClientError::Unimplemented) => client.mkdir(service, &persistent).await,
            done => done,
        }
    }
}

/// The id of a node's name, without the sequence.
pub(crate) fn id_of(name: &str) -> &str {
    match name.len().checked_sub(11).and_then(|at| name.split_at_checked(at)) {
        Some((id, sequence)) if !id.is_empty() && is_sequence(sequence) => id,
        _ => name,
    }
}

fn is_sequence(text: &str) -> bool {
    text.strip_prefix('-').is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
}

/// A path's last segment.
pub(crate) fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether a node is a record, and not the parent of others: those of a namespace inside this one lie between its services.
pub(crate) fn is_record(stat: &Stat) -> bool {
    stat.num_children == 0
}

/// The session that a node hangs on; `None` for one that is nobody's.
pub(crate) fn session_of(stat: &Stat) -> Option<i64> {
    (stat.ephemeral_owner != 0).then_some(stat.ephemeral_owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sequence_is_stripped_and_never_two() {
        for (name, id) in [
            ("a-0000000012", "a"),
            ("a-0000000012-0000000003", "a-0000000012"),
            ("a", "a"),
            ("a-000000012", "a-000000012"),
            ("a-00000000012", "a-00000000012"),
            ("-0000000012", "-0000000012"),
            ("--0000000012", "-"),
            ("ü-0000000012", "ü"),
            ("00000000ü", "00000000ü"),
            ("", ""),
        ] {
            assert_eq!(id_of(name), id, "{name}");
        }
    }

    #[test]
    fn r12_a_prefix_that_cannot_be_held_is_refused() {
        assert!(Tree::new("/prod ü", false, Vec::new()).is_ok());
        for bad in ["/🐂", "/\u{e000}", "/a//b", "/\u{fffd}"] {
            assert!(Tree::new(bad, false, Vec::new()).is_err(), "{bad}");
        }
    }

    #[test]
    fn paths_end_without_a_separator() {
        let tree = Tree::new("/prod", false, Vec::new()).unwrap();
        let key = Key { service: "pay/v2".into(), id: "a:1".into() };
        assert_eq!(tree.service(&key.service), "/prod/pay%2Fv2");
        assert_eq!(tree.record(&key), "/prod/pay%2Fv2/a%3A1");
        assert_eq!(name_of("/prod/pay%2Fv2/a%3A1"), "a%3A1");
    }
}
