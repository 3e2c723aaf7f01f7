//! Where things are in Redis: what belongs to a service lies in one hash slot.

use discovery_core::store::Scope;
use discovery_core::{Key, KeySpace};

/// What stands for a service in the list of services, as the id in a key of the common layout.
const PRESENT: &str = "-";

/// The keys of a prefix. A record's key is that of [`KeySpace`] with the service in braces: `{/discovery/pay}/10.0.0.5%3A9000`.
pub(crate) struct Layout {
    space: KeySpace,
    /// The prefix without braces of its own, which would move the hash tag.
    root: String,
}

impl Layout {
    pub(crate) fn new(space: KeySpace) -> Self {
        let root = space.prefix().replace('%', "%25").replace('{', "%7B").replace('}', "%7D");
        Self { space, root }
    }

    pub(crate) fn space(&self) -> &KeySpace {
        &self.space
    }

    /// What every key of a scope begins with.
    pub(crate) fn stem(&self, scope: &Scope) -> String {
        match scope {
            Scope::Service(service) => self.service_stem(self.segment(service).as_str()),
            Scope::Names => self.names_stem(),
        }
    }

    /// The stem of the list of services.
    pub(crate) fn names_stem(&self) -> String {
        format!("{{{}}}:names", self.root)
    }

    /// The stem of a service whose name is encoded already.
    pub(crate) fn service_stem(&self, segment: &str) -> String {
        format!("{{{}/{segment}}}", self.root)
    }

    /// The encoded name of a service: no braces, no separators.
    pub(crate) fn segment(&self, service: &str) -> String {
        let prefix = self.space.service_prefix(service);
        prefix[self.space.root().len()..].trim_end_matches('/').to_owned()
    }

    /// The encoded id of a record.
    pub(crate) fn id(&self, key: &Key) -> String {
        self.space.key(key).split_off(self.space.service_prefix(&key.service).len())
    }

    /// The keys that the engine is given for the ids of a scope.
    pub(crate) fn public_keys(&self, scope: &Scope) -> PublicKeys {
        match scope {
            Scope::Service(service) => PublicKeys { head: self.space.service_prefix(service), tail: String::new() },
            Scope::Names => PublicKeys { head: self.space.root(), tail: format!("/{PRESENT}") },
        }
    }
}

/// Makes keys of the common layout.
pub(crate) struct PublicKeys {
    head: String,
    tail: String,
}

impl PublicKeys {
    /// The key of an id. One that is no text is kept recognisable for the report.
    pub(crate) fn of(&self, id: &[u8]) -> String {
        [&self.head, &*String::from_utf8_lossy(id), &self.tail].concat()
    }
}

/// The channel on which the changes of a scope are published.
pub(crate) fn channel(stem: &str) -> String {
    format!("{stem}:changes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(prefix: &str) -> Layout {
        Layout::new(KeySpace::new(prefix).unwrap())
    }

    #[test]
    fn everything_of_a_service_has_one_hash_tag() {
        let layout = layout("/a{x}b");
        let key = Key { service: "p{a}y/1".into(), id: "10.0.0.5:9000".into() };
        assert_eq!(layout.stem(&Scope::Service(key.service.clone())), "{/a%7Bx%7Db/p%7Ba%7Dy%2F1}");
        assert_eq!(layout.stem(&Scope::Names), "{/a%7Bx%7Db}:names");
        assert_eq!(layout.id(&key), "10.0.0.5%3A9000");
        assert_eq!(
            layout.public_keys(&Scope::Service(key.service.clone())).of(layout.id(&key).as_bytes()),
            layout.space.key(&key)
        );
    }

    #[test]
    fn w11_no_two_prefixes_or_names_share_a_stem() {
        let service = |prefix: &str, name: &str| layout(prefix).stem(&Scope::Service(name.into()));
        assert_ne!(service("/a%7Bb", "c"), service("/a{b", "c"));
        assert_ne!(service("/a", "b/c"), service("/a/b", "c"));
        assert_ne!(service("/a", "b"), layout("/a/b").stem(&Scope::Names));
    }

    #[test]
    fn a_listed_service_reads_back_as_its_name() {
        let layout = layout("");
        let public = layout.public_keys(&Scope::Names).of(layout.segment("pay/v2 ü").as_bytes());
        assert_eq!(layout.space.parse(&public).unwrap().service.as_ref(), "pay/v2 ü");
    }
}
