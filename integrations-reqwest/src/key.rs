//! What requests of one session have in common, for pickers that keep them together.

use std::fmt;
use std::sync::Arc;

use http::{Extensions, HeaderName};
use reqwest::Request;

/// The key of one request, given as an extension: `client.get(url).with_extension(HashKey::from("user-5"))`. It goes before whatever the
/// client would take as the key.
#[derive(Clone, PartialEq, Eq)]
pub struct HashKey(Arc<[u8]>);

impl HashKey {
    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<&str> for HashKey {
    fn from(key: &str) -> Self {
        Self(key.as_bytes().into())
    }
}

impl From<&[u8]> for HashKey {
    fn from(key: &[u8]) -> Self {
        Self(key.into())
    }
}

impl From<Vec<u8>> for HashKey {
    fn from(key: Vec<u8>) -> Self {
        Self(key.into())
    }
}

/// A key may be what a session is authenticated by, so it is not shown.
impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HashKey({} bytes)", self.0.len())
    }
}

type KeyOf = dyn Fn(&Request) -> Option<HashKey> + Send + Sync;

/// Where the key of a request comes from.
#[derive(Clone)]
pub(crate) enum KeySource {
    Extension,
    Header(HeaderName),
    Closure(Arc<KeyOf>),
}

impl KeySource {
    pub(crate) fn key(&self, request: &Request, extensions: &Extensions) -> Option<HashKey> {
        extensions.get::<HashKey>().cloned().or_else(|| match self {
            Self::Extension => None,
            Self::Header(name) => request.headers().get(name).map(|value| value.as_bytes().into()),
            Self::Closure(key) => key(request),
        })
    }
}
