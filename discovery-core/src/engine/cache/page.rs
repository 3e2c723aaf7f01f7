//! What a file says, and the check that it is whole and meant for us.
//!
//! ```text
//! discovery-kit set 1 <checksum of all that follows>
//! {"registry":"etcd://h1:2379/prod","service":"pay","known_good":1767225600000,"lines":1}
//! {"v":1,"id":"a","service":"pay","endpoints":["grpc://10.0.0.5:9000"],…}
//! ```
//!
//! A record is the native one, whatever layout the store has. The list of services has no `service`, and a name a line.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use crate::model::{Key, decode, encode};
use crate::snapshot::{Freshness, ServiceNames, Since, Snapshot, View};
use crate::store::Scope;
use crate::{Error, ErrorKind, Result};

/// The first line, up to the checksum. Another number is another format, under file names of its own.
const MAGIC: &str = "discovery-kit set 1 ";
/// How names of files end, with the number of the format.
pub(super) const ENDING: &str = ".set1";
/// The readable part of a file's name. With the hash and a temporary ending it stays below every file system's limit.
const MAX_READABLE: usize = 40;
/// A file from the future is believed up to here, since clocks are corrected. Beyond, its age is unknown, and it might never end.
const MAX_SKEW: Duration = Duration::from_secs(5 * 60);

/// A view that can be kept on disk: one JSON text a line.
pub(crate) trait Kept: View {
    /// Writes its lines and answers how many.
    fn write(&self, text: &mut Vec<u8>) -> usize;

    /// Reads them back.
    fn read<'a>(scope: &Scope, lines: impl Iterator<Item = &'a [u8]>) -> serde_json::Result<Self>
    where
        Self: Sized;
}

impl Kept for Snapshot {
    fn write(&self, text: &mut Vec<u8>) -> usize {
        for instance in self.instances.iter() {
            text.extend(encode(instance));
            text.push(b'\n');
        }
        self.instances.len()
    }

    fn read<'a>(scope: &Scope, lines: impl Iterator<Item = &'a [u8]>) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Named<'a> {
            #[serde(borrow)]
            id: Cow<'a, str>,
        }
        let Scope::Service(service) = scope else {
            return Err(serde::de::Error::custom("a list of names is no set"));
        };
        let instances = lines.map(|line| {
            let key = Key { service: service.clone(), id: serde_json::from_slice::<Named<'_>>(line)?.id.into() };
            decode(&key, line).map(|known| Arc::new(known.instance)).map_err(serde::de::Error::custom)
        });
        let instances = instances.collect::<serde_json::Result<_>>()?;
        Ok(Self { instances, ..Self::loading(service.clone()) })
    }
}

impl Kept for ServiceNames {
    fn write(&self, text: &mut Vec<u8>) -> usize {
        for name in self.names.iter() {
            // A string always has a JSON form.
            text.extend(serde_json::to_vec(&**name).unwrap_or_default());
            text.push(b'\n');
        }
        self.names.len()
    }

    fn read<'a>(_: &Scope, lines: impl Iterator<Item = &'a [u8]>) -> serde_json::Result<Self> {
        let names = lines.map(|line| serde_json::from_slice::<String>(line).map(Arc::from));
        Ok(Self {
            freshness: Freshness::Loading(Since::now(), None),
            names: Arc::new(names.collect::<Result<_, _>>()?),
        })
    }
}

/// What a file is for.
#[derive(Debug, Clone)]
pub(super) struct Label {
    pub(super) registry: String,
    pub(super) scope: Scope,
}

impl Label {
    fn service(&self) -> Option<&str> {
        match &self.scope {
            Scope::Service(service) => Some(service),
            Scope::Names => None,
        }
    }

    /// A name that any file system holds and keeps apart, whatever the service is called: lower case, short, the rest in a hash.
    pub(super) fn file_name(&self) -> String {
        let service = self.service();
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
        let mut name: String = service.unwrap_or("services").chars().take(MAX_READABLE).map(plain).collect();
        // Lengths keep `a` + `bc` apart from `ab` + `c`, and the list of services from a service.
        let whole = format!("{}:{}{service:?}", self.registry.len(), self.registry);
        // Writing to a string cannot fail.
        let _ = write!(name, "-{:032x}{ENDING}", xxh3_128(whole.as_bytes()));
        name
    }

    /// Whether a file of this name can be one that we wrote, whole.
    pub(super) fn is_name(name: &str) -> bool {
        let Some((readable, hash)) = name.strip_suffix(ENDING).and_then(|stem| stem.rsplit_once('-')) else {
            return false;
        };
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        readable.len() <= MAX_READABLE && readable.bytes().all(plain) && hash.len() == 32 && hash.bytes().all(is_hex)
    }
}

pub(super) fn is_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

#[derive(Serialize, Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    registry: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    service: Option<Cow<'a, str>>,
    /// In milliseconds since 1970.
    known_good: u64,
    lines: usize,
}

/// A file that was read.
pub(super) struct Page<K> {
    pub(super) view: K,
    pub(super) known_good: SystemTime,
}

impl Page<()> {
    /// The bytes of a file.
    pub(super) fn write(label: &Label, known_good: SystemTime, view: &dyn Kept) -> Vec<u8> {
        let mut lines = Vec::new();
        let head = Head {
            registry: Cow::Borrowed(&label.registry),
            service: label.service().map(Cow::Borrowed),
            known_good: known_good
                .duration_since(UNIX_EPOCH)
                .map_or(0, |at| u64::try_from(at.as_millis()).unwrap_or(u64::MAX)),
            lines: view.write(&mut lines),
        };
        // Strings and numbers always have a JSON form.
        let mut body = serde_json::to_vec(&head).unwrap_or_default();
        body.push(b'\n');
        body.append(&mut lines);
        let mut bytes = format!("{MAGIC}{:032x}\n", xxh3_128(&body)).into_bytes();
        bytes.append(&mut body);
        bytes
    }
}

impl<K: Kept> Page<K> {
    /// Reads a file, which may hold anything.
    ///
    /// # Errors
    /// `Corrupt`, saying what is wrong with it.
    pub(super) fn read(bytes: &[u8], label: &Label) -> Result<Self> {
        let wrong = |why: &str| Error::new(ErrorKind::Corrupt, "read", format!("the file {}", label.file_name()), why);
        let not_json = |error: serde_json::Error| wrong(&error.to_string());
        let text = bytes.strip_prefix(MAGIC.as_bytes()).ok_or_else(|| wrong("it is not of this format"))?;
        let (checksum, body) = split_line(text).ok_or_else(|| wrong("it ends early"))?;
        if checksum != format!("{:032x}", xxh3_128(body)).as_bytes() {
            return Err(wrong("its checksum is another; it was cut or changed"));
        }
        let (head, lines) = split_line(body).ok_or_else(|| wrong("it ends early"))?;
        let head: Head<'_> = serde_json::from_slice(head).map_err(not_json)?;
        if head.registry != label.registry || head.service.as_deref() != label.service() {
            return Err(wrong(&format!("it is for {:?} of {:?}", head.service, head.registry)));
        }
        let lines = lines.split_inclusive(|b| *b == b'\n');
        if lines.clone().count() != head.lines {
            return Err(wrong("it has not as many lines as it says"));
        }
        let known_good = UNIX_EPOCH.checked_add(Duration::from_millis(head.known_good));
        let known_good = known_good.ok_or_else(|| wrong("its time is no time"))?;
        Ok(Self { view: K::read(&label.scope, lines).map_err(not_json)?, known_good })
    }

    /// Whether it is of use still, by the wall clock, which may have gone in any direction.
    pub(super) fn is_recent(&self, max_age: Duration) -> bool {
        match SystemTime::now().duration_since(self.known_good) {
            Ok(age) => age <= max_age,
            Err(ahead) => ahead.duration() <= MAX_SKEW,
        }
    }
}

fn split_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|b| *b == b'\n')?;
    Some((&bytes[..at], &bytes[at + 1..]))
}
