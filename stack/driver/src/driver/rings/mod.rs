//! The rings of a device: runs to and from other processes of this user through shared memory.
//!
//! | in | decided by | out |
//! |---|---|---|
//! | a run for a process without a ring | [`Outgoing::transmit`] | the socket; an offer is wanted |
//! | runs of a path with a ring | [`Outgoing::with_ring`] | records; wakes a sleeper |
//! | another run for a process with a ring | [`Outgoing::transmit`] | a record; wakes a sleeper |
//! | a wanted offer | [`Outgoing::serve`], background thread | an offer to the process |
//! | a reply, the end of a connection | [`Outgoing::serve`] | an open ring, or a pause |
//! | a second without a record | [`Outgoing::free_idle`], background thread | fewer pages |
//! | an offer of another process | [`Incoming::accept`], background thread | a ring to read |
//! | a record | `Ports::receive` (`ports/memory.rs`) | packets to the device |
//! | a thread sleeps on the sockets | [`Incoming::fall_asleep`] | producers wake it |
//!
//! A ring leads from one device on one of its addresses to another device on one of its addresses.
//! So each path has one ring. docs/architecture/shared-memory.md has the reasons.
//!
//! | file | subject |
//! |---|---|
//! | `outgoing` | rings that this device writes |
//! | `ring` | the writing end of a ring |
//! | `incoming` | rings that this device reads, and the sleep of its threads |

mod incoming;
mod outgoing;
mod ring;

use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

pub(super) use self::incoming::{Incoming, Read, Reader};
use self::outgoing::Outgoing;
use super::eventfd::EventFd;
use super::thread_waker::ThreadWaker;
use crate::link::interface::Interface;
use crate::port::udp::UdpPort;
use crate::port::{Run, SendInMemory, SendOutcome};
use crate::sync::Arc;
use crate::sys::fork::ProcessId;
use crate::time::Time;

/// The most events that one look at an epoll instance returns.
const READY: usize = 16;

/// The rings of a device.
#[derive(Debug)]
pub(super) struct Rings {
    outgoing: Outgoing,
    pub incoming: Incoming,
    process: ProcessId,
}

impl Rings {
    /// Starts without a ring. Rings lead only to addresses of `interfaces`. `waker` wakes the
    /// background thread, which makes offers.
    pub fn new(
        slot: u8,
        interfaces: Vec<Interface>,
        waker: Arc<ThreadWaker<EventFd>>,
    ) -> Result<Self, Errno> {
        Ok(Self {
            outgoing: Outgoing::new(slot, interfaces, waker)?,
            incoming: Incoming::new()?,
            process: ProcessId::this(),
        })
    }

    /// Returns whether this is a forked child of the process that opened the device. The child has
    /// neither the memory nor the connections, and another thread of the parent may have held a
    /// lock. It calls no other function.
    pub fn is_inherited(&self) -> bool {
        self.process.is_other()
    }

    /// Sends a run to the process with `slot`, if this device has a ring to it. `sender` is the
    /// port of the run.
    pub fn transmit(&self, sender: &UdpPort, slot: u8, run: &Run<'_>) -> Option<SendOutcome> {
        self.outgoing.transmit(sender, slot, run)
    }

    /// Calls `send` with the ring from `sender` to the process with `slot`, if it is open. Returns
    /// whether it did. Other threads wait for the ring meanwhile.
    pub fn with_ring(
        &self,
        sender: &UdpPort,
        to: IpAddr,
        slot: u8,
        send: &mut dyn for<'m> FnMut(&mut (dyn SendInMemory<'m> + 'm)),
    ) -> bool {
        self.outgoing.with_ring(sender, to, slot, send)
    }

    /// Returns whether this device has a ring from an own address to the process with `slot`.
    #[cfg(feature = "cm")]
    pub fn is_open(&self, from: IpAddr, to: IpAddr, slot: u8) -> bool {
        self.outgoing.is_open(from, to, slot)
    }

    /// Returns whether unread runs fill half of the ring to the process; `None` without a ring.
    pub fn is_receiver_congested(&self, to: IpAddr, slot: u8) -> Option<bool> {
        self.outgoing.is_half_full(to, slot)
    }

    /// Replaces the interfaces of this host.
    pub fn set_interfaces(&self, interfaces: Vec<Interface>) {
        self.outgoing.set_interfaces(interfaces);
    }

    /// Makes the offers that are wanted, and reads replies and ends of connections. Only the
    /// background thread calls this function.
    pub fn serve(&self) {
        self.outgoing.serve();
        self.incoming.collect_ended();
    }

    /// Gives the pages of idle rings back, if that is due.
    pub fn free_idle(&self, now: Time) {
        self.outgoing.free_idle(now);
    }

    /// Returns the time at which [`free_idle`](Self::free_idle) is due.
    pub fn idle_at(&self) -> Option<Time> {
        self.outgoing.idle_at()
    }

    /// Returns the descriptors that are readable when [`serve`](Self::serve) is due.
    pub fn control(&self) -> [BorrowedFd<'_>; 2] {
        [self.outgoing.descriptor(), self.incoming.ends()]
    }

    /// Returns whether an offer is wanted, which no descriptor reports.
    pub fn is_offer_wanted(&self) -> bool {
        self.outgoing.is_offer_wanted()
    }
}

/// Returns the data of some descriptors of an epoll instance that are ready.
fn ready(instance: BorrowedFd<'_>) -> impl Iterator<Item = u64> + use<> {
    let none =
        epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
    let mut events = [none; READY];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    // The descriptor is valid; after an interruption the caller tries again soon.
    let count = epoll::wait(instance, &mut events[..], Some(&at_once)).unwrap_or(0);
    events.into_iter().take(count).map(|event| event.data.u64())
}
