//! Attempts to connect to a port on which nothing listens, seen as packets on the wire.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, recv, socket_with};
use tokio::time::Duration;

/// `ETH_P_ALL` in the order of the network: packets of every protocol, also those that are sent.
const EVERYTHING: u32 = 0x0300;
/// Short enough that the kernel's queue does not run over meanwhile.
const PAUSE: Duration = Duration::from_millis(5);

/// Counts until it is dropped.
pub(super) struct Knocks {
    /// Written by the task that listens. A figure, so any ordering does.
    count: Arc<AtomicUsize>,
    ended: Arc<AtomicBool>,
}

impl Knocks {
    /// Listens to everything on the machine; `None` without the right to do that.
    pub(super) fn listen(port: SocketAddr) -> Option<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let everything = NonZeroU32::new(EVERYTHING).map(Protocol::from_raw);
        let socket = socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, everything).ok()?;
        let knocks = Self { count: Arc::default(), ended: Arc::default() };
        let (count, ended) = (knocks.count.clone(), knocks.ended.clone());
        tokio::spawn(async move {
            // Each packet is seen where it is sent and where it arrives, so one counts by its port and its number.
            let mut seen = HashSet::new();
            while !ended.load(Ordering::Relaxed) {
                while let Some(knock) = next(&socket, port.port()) {
                    seen.extend(knock);
                }
                count.store(seen.len(), Ordering::Relaxed);
                tokio::time::sleep(PAUSE).await;
            }
        });
        Some(knocks)
    }

    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed) as u64
    }
}

impl Drop for Knocks {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// The next packet, if there is one: what it says as a knock, if it is one.
fn next(socket: &OwnedFd, port: u16) -> Option<Option<(u16, u32)>> {
    let mut packet = [0; 64];
    match recv(socket, &mut packet[..], RecvFlags::empty()) {
        Ok((_, length)) => Some(knock(packet.get(..length).unwrap_or(&packet), port)),
        Err(Errno::INTR | Errno::NOBUFS) => Some(None),
        Err(_) => None,
    }
}

/// The source port and sequence number of a TCP packet over IPv4 that opens a connection to a port.
fn knock(packet: &[u8], port: u16) -> Option<(u16, u32)> {
    let first = *packet.first()?;
    if first >> 4 != 4 || *packet.get(9)? != 6 {
        return None;
    }
    let tcp = packet.get(usize::from(first & 0xf) * 4..)?;
    let [a, b, c, d, e, f, g, h] = *tcp.first_chunk()?;
    let opens = tcp.get(13)? & 0b1_0010 == 0b10;
    (opens && u16::from_be_bytes([c, d]) == port)
        .then(|| (u16::from_be_bytes([a, b]), u32::from_be_bytes([e, f, g, h])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_opens_a_connection_to_the_port_is_a_knock() {
        let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1];
        packet.extend([0x1f, 0x90, 0x4e, 0x20, 0, 0, 0, 7, 0, 0, 0, 0, 0x50, 2, 0, 0, 0, 0, 0, 0]);
        assert_eq!(knock(&packet, 20_000), Some((8_080, 7)));
        assert_eq!(knock(&packet, 20_001), None);
        packet[33] = 0b1_0010;
        assert_eq!(knock(&packet, 20_000), None, "an answer");
        assert_eq!(knock(&packet[..25], 20_000), None);
    }
}
