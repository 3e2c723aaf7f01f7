//! What the requests of one session have in common, for pickers that keep them together.

use std::sync::Arc;

use discovery_core::Headers;
use http::Request;
use http::header::{HeaderMap, HeaderName};
use http::request::Parts;
use tonic::body::Body;

/// The hash key of one request, put into its extensions: `request.extensions_mut().insert(HashKey::new("user-42"))`. It counts before what the
/// [builder](crate::ChannelBuilder) says.
#[derive(Clone, PartialEq, Eq)]
pub struct HashKey(Arc<[u8]>);

impl HashKey {
    /// Makes a key of some bytes.
    pub fn new(key: impl AsRef<[u8]>) -> Self {
        Self(key.as_ref().into())
    }
}

/// A key may be what a session is authenticated by, so it is not shown.
impl std::fmt::Debug for HashKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HashKey({} bytes)", self.0.len())
    }
}

/// Finds a request's key.
type Find = Arc<dyn Fn(&Parts) -> Option<Vec<u8>> + Send + Sync>;

/// Where the channel looks for a key that is not in the extensions.
#[derive(Clone, Default)]
pub(super) enum KeySource {
    #[default]
    None,
    Header(HeaderName),
    With(Find),
}

impl KeySource {
    /// The key of a request, which is as before afterwards.
    pub(super) fn of(&self, request: &mut Request<Body>) -> Option<HashKey> {
        if let Some(key) = request.extensions().get::<HashKey>() {
            return Some(key.clone());
        }
        match self {
            Self::None => None,
            Self::Header(name) => request.headers().get(name).map(HashKey::new),
            Self::With(find) => {
                let (head, body) = std::mem::take(request).into_parts();
                let key = find(&head).map(HashKey::new);
                *request = Request::from_parts(head, body);
                key
            }
        }
    }
}

impl HashKey {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A request's headers, for pickers.
pub(super) struct Heads<'a>(pub(super) &'a HeaderMap);

impl Headers for Heads<'_> {
    fn header(&self, name: &str) -> Option<&[u8]> {
        self.0.get(name).map(|value| value.as_bytes())
    }
}

impl std::fmt::Debug for KeySource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Header(name) => f.debug_tuple("Header").field(name).finish(),
            Self::With(_) => f.write_str("With"),
        }
    }
}
