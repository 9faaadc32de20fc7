//! The messages with which two processes agree on a ring.
//!
//! ```text
//!   producer                                        consumer
//!     ── connects to the rendezvous server ──────────>
//!     ── 'S', its address and slot, the memory ──────>
//!                  <── connects to the server of that address and slot: is it the same process?
//!     <── 'S' ───────────────────────────────────────   the ring is open
//!     ── one byte: there are records ────────────────>  only if the consumer sleeps
//!     ── the end of the connection, by any cause ─────  the ring is closed
//! ```
//! Each direction has a ring of its own, which its producer offers. So two processes that offer
//! rings at once do not meet. A process of an earlier version replies with its version, and a
//! process without rings closes the connection; the packets then stay on sockets.
//!
//! The connection belongs to the two processes alone. The kernel ends it with either of them, so no
//! ring outlives one of its ends unnoticed. A message instead of an eventfd wakes the consumer: a
//! sender can say for each message that it does not wait, whatever the other process did to the
//! descriptor.

use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::rendezvous::{Identity, PROTOCOL, SharedAddress, connect};
use crate::sys::fork::{CloseOnFork, close_all_on_fork};
use crate::sys::shared_memory::SharedMemory;
use crate::sys::unix;

/// The first byte of an offer, and of the reply that accepts it.
pub(crate) const RING: u8 = b'S';
/// The layout of the memory: the letters "urxe" and a version.
const LAYOUT: u64 = 0x7572_7865_0000_0003;
const OFFER_LEN: usize = 28;
/// The capacities that a consumer accepts, as powers of two: 64 KiB to 16 MiB.
const CAPACITIES: std::ops::RangeInclusive<u8> = 16..=24;
/// The messages that one call reads from a connection.
const MAX_MESSAGES: usize = 64;

/// A device on one of its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The address.
    pub address: IpAddr,
    /// The interface of a link-local address, otherwise 0.
    pub scope_id: u32,
    /// The process slot.
    pub slot: u8,
}

impl Endpoint {
    fn shared(self) -> SharedAddress {
        SharedAddress::new(self.address, self.scope_id)
    }

    fn octets(self) -> [u8; 16] {
        match self.address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        }
    }
}

/// The connection of a ring.
#[derive(Debug)]
pub struct Link(CloseOnFork<OwnedFd>);

impl Link {
    /// Makes both ends of a connection in this process. A test then has the ends of a ring that no
    /// other process offers.
    ///
    /// # Errors
    /// The system's.
    pub fn pair() -> Result<[Self; 2], Errno> {
        let ends = close_all_on_fork(|| unix::pair().map(Vec::from))?;
        <[_; 2]>::try_from(ends).map(|ends| ends.map(Self)).map_err(|_| Errno::NFILE)
    }

    /// Wakes the consumer. Never waits: if the queue is full, the consumer has a message anyway.
    pub fn wake(&self) {
        // If the other process has ended, the link is readable.
        let _ = unix::send(&*self.0, &[&[0]], &[]);
    }

    /// Takes the messages that wait. Returns whether the other process still has the ring.
    #[must_use]
    pub fn drain(&self) -> bool {
        for _ in 0..MAX_MESSAGES {
            match unix::receive(&*self.0, &mut [0], &mut Vec::new(), false) {
                // The end of the connection; a message has a byte.
                Ok(0) => return false,
                Ok(_) => {}
                Err(errno) => return errno == Errno::AGAIN,
            }
        }
        true
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The reply to an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// There is none yet.
    Pending,
    /// The ring is open.
    Accepted,
    /// The other process takes no ring from this one.
    Refused,
}

/// Offers a ring of `2^capacity` bytes from a device of this process to the process of `to`.
///
/// # Errors
/// `ECONNREFUSED` if no process of this user has the address and slot, `ENOTSUP` if it is this
/// process or one whose number is unknown here; the system's.
pub fn offer(from: Endpoint, to: Endpoint, capacity: u8) -> Result<(Link, SharedMemory), Errno> {
    let found = connect(to.shared(), to.slot, Identity::own());
    let (connection, peer) = found.map_err(|failed| failed.errno)?;
    if peer.pid <= 0 || peer.pid == std::process::id().cast_signed() {
        return Err(Errno::NOTSUP);
    }
    let (memory, file) = SharedMemory::create(1 << capacity, LAYOUT)?;
    unix::send(&*connection, &[&message(from, capacity)], &[file.as_fd()])?;
    Ok((Link(connection), memory))
}

/// Reads the reply to an offer.
#[must_use]
pub fn reply(link: &Link) -> Reply {
    let mut bytes = [0; 2];
    match unix::receive(&*link.0, &mut bytes, &mut Vec::new(), false) {
        Ok(2) if bytes == [RING, PROTOCOL] => Reply::Accepted,
        Err(Errno::AGAIN) => Reply::Pending,
        _ => Reply::Refused,
    }
}

fn message(from: Endpoint, capacity: u8) -> [u8; OFFER_LEN] {
    let mut bytes = [0; OFFER_LEN];
    bytes[..4].copy_from_slice(&[RING, PROTOCOL, from.slot, capacity]);
    bytes[8..12].copy_from_slice(&from.scope_id.to_ne_bytes());
    bytes[12..].copy_from_slice(&from.octets());
    bytes
}

fn parse(message: &[u8]) -> Option<(Endpoint, u8)> {
    let bytes: &[u8; OFFER_LEN] = message.try_into().ok()?;
    let [RING, PROTOCOL, slot, capacity, ..] = *bytes else { return None };
    let scope_id = u32::from_ne_bytes(std::array::from_fn(|n| bytes[8 + n]));
    let octets: [u8; 16] = std::array::from_fn(|n| bytes[12 + n]);
    let address = IpAddr::V6(Ipv6Addr::from(octets)).to_canonical();
    let is_valid = slot < urxe_types::qpn::MAX_PROCESS_SLOTS && CAPACITIES.contains(&capacity);
    is_valid.then_some((Endpoint { address, scope_id, slot }, capacity))
}

/// An offer that a rendezvous server received.
#[derive(Debug)]
pub struct RingOffer {
    connection: CloseOnFork<OwnedFd>,
    file: CloseOnFork<OwnedFd>,
    from: Endpoint,
    capacity: u8,
}

impl RingOffer {
    /// Makes the offer of a message that came with `descriptors`; `None` if it is no valid offer.
    pub(crate) fn new(
        connection: CloseOnFork<OwnedFd>,
        message: &[u8],
        descriptors: Vec<CloseOnFork<OwnedFd>>,
    ) -> Option<Self> {
        let (from, capacity) = parse(message)?;
        let [file] = <[_; 1]>::try_from(descriptors).ok()?;
        Some(Self { connection, file, from, capacity })
    }

    /// Returns the device that the other process names.
    #[must_use]
    pub fn from(&self) -> Endpoint {
        self.from
    }

    /// Maps the memory, if the other process has the address and slot that it names. The packets of
    /// the ring then come from there, and a process can name no other one. Afterwards the caller
    /// must [confirm].
    ///
    /// # Errors
    /// `EACCES` if another process has them; `EINVAL` if the memory is not usable; the system's.
    pub fn accept(self) -> Result<Accepted, Errno> {
        let Self { connection, file, from, capacity } = self;
        let peer = unix::peer(&*connection)?;
        let named = connect(from.shared(), from.slot, Identity::own());
        let (_, named) = named.map_err(|failed| failed.errno)?;
        if named.pid <= 0 || named != peer {
            return Err(Errno::ACCESS);
        }
        let memory = SharedMemory::open(&*file, 1 << capacity, LAYOUT)?;
        Ok(Accepted { link: Link(connection), memory, from })
    }
}

/// A ring that this process reads.
#[derive(Debug)]
pub struct Accepted {
    /// The connection to the producer.
    pub link: Link,
    /// The memory of the ring.
    pub memory: SharedMemory,
    /// The device that writes.
    pub from: Endpoint,
}

/// Says that the ring of a link is open.
///
/// # Errors
/// The system's.
pub fn confirm(link: &Link) -> Result<(), Errno> {
    unix::send(&*link.0, &[&[RING, PROTOCOL]], &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_comes_back_as_it_was_and_others_are_none() {
        for (address, scope_id) in [("10.0.0.1", 0), ("fe80::1", 7)] {
            let from = Endpoint { address: address.parse().unwrap(), scope_id, slot: 63 };
            let sent = message(from, 20);
            assert_eq!(parse(&sent), Some((from, 20)));
            // Another message, protocol, slot, capacity.
            for (at, value) in [(0, b'J'), (1, PROTOCOL + 1), (2, 64), (3, 63), (3, 15), (3, 25)] {
                let mut wrong = sent;
                wrong[at] = value;
                assert_eq!(parse(&wrong), None, "{at} {value}");
            }
            assert_eq!(parse(&sent[..OFFER_LEN - 1]), None);
        }
    }
}
