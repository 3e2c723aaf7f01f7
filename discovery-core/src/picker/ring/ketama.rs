//! The ring of nginx (`hash $key consistent`), which pingora has too.
//!
//! Source: the ketama method as `ngx_http_upstream_hash_module` documents and pingora-ketama 0.6 repeats it: a point is the CRC-32 of host, a zero
//! byte, port and the point before in little endian, beginning with 0; 160 points for each unit of weight.

use super::digest::crc32;
use super::{Ring, weighty};
use crate::DEFAULT_WEIGHT;
use crate::picker::{Member, Picker, PickerFactory};

const POINTS: u64 = 160;
/// More points than this are scaled down, since weights come from the registry; it takes 25 MB.
const MAX_POINTS: u64 = 1 << 21;

/// Sends a key ([`Context::with_key`](crate::Context::with_key)) where nginx and pingora send it.
///
/// The peers' weight 1 is the default weight here, or what [`with_unit`](Self::with_unit) says; a member has `160 * weight / unit` points, at
/// least one. If there were more than 2,097,152 in all, each member has proportionally fewer, and the ring agrees with theirs no more. Hosts
/// are hashed as they are registered: as in nginx, a name and its address are two. IPv6 is without brackets, as pingora has it.
#[derive(Debug, Clone, Copy)]
pub struct Ketama {
    unit: u32,
}

impl Ketama {
    /// Makes a factory under which a member of the default weight, 100, has 160 points.
    pub fn new() -> Self {
        Self { unit: DEFAULT_WEIGHT }
    }

    /// Sets the weight that is 1 for the peers; 0 counts as 1.
    #[must_use]
    pub fn with_unit(mut self, unit: u32) -> Self {
        self.unit = unit.max(1);
        self
    }
}

impl Default for Ketama {
    fn default() -> Self {
        Self::new()
    }
}

impl PickerFactory for Ketama {
    fn build(&self, members: &[Member]) -> Box<dyn Picker> {
        let wanted = |member: &Member| (POINTS * u64::from(member.weight()) / u64::from(self.unit)).max(1);
        let total: u128 = weighty(members).map(|(member, _)| u128::from(wanted(member))).sum();
        let scaled = |points: u64| match total > u128::from(MAX_POINTS) {
            true => (u128::from(points) * u128::from(MAX_POINTS) / total).max(1),
            false => u128::from(points),
        };
        let mut points = Vec::new();
        for (member, index) in weighty(members) {
            let Some(endpoint) = member.instance().endpoints().first() else {
                continue;
            };
            let base = crc32(crc32(0, endpoint.host().as_bytes()), b"\0");
            let base = crc32(base, endpoint.port().to_string().as_bytes());
            let mut point = 0u32;
            for _ in 0..scaled(wanted(member)) {
                point = crc32(base, &point.to_le_bytes());
                points.push((u64::from(point), index));
            }
        }
        Box::new(Ring::new(points, |key| u64::from(crc32(0, key))))
    }
}
