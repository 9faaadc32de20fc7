//! The rings that a device reads.
//!
//! One thread at a time reads them: the one that holds the `Receiver`, which has a [`Reader`] for
//! each ring. Threads that sleep on the sockets also sleep on [`Incoming::wakes`]. Several threads
//! may do so, and each of them may be the first to wake. So `asleep` stays set in each ring until
//! the last of them is awake, and the thread that takes the messages sets it again for the others.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU8;

use rustix::event::epoll;
use rustix::io::Errno;

use super::ready;
use crate::port::Datagrams;
use crate::ring::{
    Accepted, Broken, Consumer, Link, RingOffer, Unread, confirm, fall_asleep, has_records, wake_up,
};
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex, lock};
use crate::sys::fork::{CloseOnFork, close_on_fork};
use crate::sys::shared_memory::SharedMemory;

/// The most rings of a device.
const MAX_RINGS: usize = 256;

/// See the [module](self).
#[derive(Debug)]
pub(in crate::driver) struct Incoming {
    state: Mutex<Rings>,
    /// The number of rings.
    count: AtomicUsize,
    /// The rings that have no reader yet.
    fresh: Mutex<Vec<Arc<Ring>>>,
    has_fresh: AtomicBool,
    /// Reports the connections that have messages.
    wakes: CloseOnFork<OwnedFd>,
    /// Reports the connections that have ended, once each.
    ends: CloseOnFork<OwnedFd>,
}

#[derive(Debug, Default)]
struct Rings {
    rings: Vec<Arc<Ring>>,
    /// The threads that sleep.
    sleepers: usize,
    next_id: u64,
}

#[derive(Debug)]
struct Ring {
    id: u64,
    link: Link,
    memory: SharedMemory,
    /// The address of the device that writes, which it has proved.
    from: IpAddr,
    /// The own address.
    to: IpAddr,
    /// The position of the reader.
    position: AtomicU64,
    /// Whether the other process has closed the connection. The records that are left are read.
    has_ended: AtomicBool,
}

impl Ring {
    fn has_records(&self) -> bool {
        has_records(self.memory.control(), self.position.load(Ordering::Relaxed))
    }
}

/// The end of a ring that the receiving thread reads.
#[derive(Debug)]
pub(in crate::driver) struct Reader {
    ring: Arc<Ring>,
    consumer: Consumer,
    /// Whether no record has been read. Packets that were sent over the socket are older.
    pub is_fresh: bool,
}

/// The result of reading a ring.
#[derive(Debug)]
pub(in crate::driver) enum Read<'b> {
    /// A run, in memory that the other process can change.
    Run(Datagrams<'b, AtomicU8>),
    /// There is none now.
    Nothing,
    /// There will be none: the other process has ended, or broke the ring.
    End,
}

impl Reader {
    pub fn has_records(&self) -> bool {
        self.ring.has_records()
    }

    /// Returns the next run. Its packets have their place until [`release`](Self::release).
    pub fn read(&mut self) -> Read<'_> {
        let Self { ring, consumer, .. } = self;
        // Before the look at the records, because the other process wrote them before it ended.
        let has_ended = ring.has_ended.load(Ordering::Acquire);
        match consumer.next(&ring.memory) {
            Ok(Some(Unread { record, position, length })) => Read::Run(Datagrams {
                from: ring.from,
                from_port: record.from_port,
                to: ring.to,
                bytes: ring.memory.view(position, length),
                segment_size: usize::from(record.segment_size),
                traffic_class: record.traffic_class,
                hop_limit: record.hop_limit,
            }),
            Ok(None) if has_ended => Read::End,
            Ok(None) => Read::Nothing,
            Err(Broken) => {
                tracing::warn!(from = %ring.from, "another process broke its ring, which ends");
                Read::End
            }
        }
    }

    /// Lets the other process overwrite the run that [`read`](Self::read) returned last.
    pub fn release(&mut self) {
        let Self { ring, consumer, .. } = self;
        consumer.release(&ring.memory);
        ring.position.store(consumer.position(), Ordering::Relaxed);
    }
}

impl Incoming {
    pub fn new() -> Result<Self, Errno> {
        let epoll = || close_on_fork(|| epoll::create(epoll::CreateFlags::CLOEXEC));
        Ok(Self {
            state: Mutex::default(),
            count: AtomicUsize::new(0),
            fresh: Mutex::default(),
            has_fresh: AtomicBool::new(false),
            wakes: epoll()?,
            ends: epoll()?,
        })
    }

    /// Returns whether there is no ring.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Returns the descriptor that is readable when a producer wakes this device.
    pub fn wakes(&self) -> BorrowedFd<'_> {
        self.wakes.as_fd()
    }

    /// Returns the descriptor that is readable when a connection has ended.
    pub fn ends(&self) -> BorrowedFd<'_> {
        self.ends.as_fd()
    }

    /// Takes a ring to the own address `to`.
    ///
    /// # Errors
    /// As [`RingOffer::accept`]; `EMFILE` if there are too many rings.
    pub fn accept(&self, offer: RingOffer, to: IpAddr) -> Result<(), Errno> {
        if self.count.load(Ordering::Relaxed) >= MAX_RINGS {
            return Err(Errno::MFILE);
        }
        self.add(offer.accept()?, to)
    }

    /// Adds a ring to the own address `to`, and confirms it.
    ///
    /// # Errors
    /// The system's.
    pub fn add(&self, accepted: Accepted, to: IpAddr) -> Result<(), Errno> {
        let Accepted { link, memory, from } = accepted;
        let mut state = lock(&self.state);
        let id = state.next_id;
        state.next_id += 1;
        let ring = Arc::new(Ring {
            id,
            link,
            memory,
            from: from.address,
            to,
            position: AtomicU64::new(0),
            has_ended: AtomicBool::new(false),
        });
        let data = || epoll::EventData::new_u64(id);
        epoll::add(&*self.wakes, ring.link.as_fd(), data(), epoll::EventFlags::IN)?;
        let end = epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        epoll::add(&*self.ends, ring.link.as_fd(), data(), end)?;
        // A thread that sleeps already has not looked at this ring, which is empty.
        if state.sleepers > 0 {
            fall_asleep(ring.memory.control());
        }
        state.rings.push(Arc::clone(&ring));
        self.count.store(state.rings.len(), Ordering::Relaxed);
        drop(state);
        lock(&self.fresh).push(Arc::clone(&ring));
        self.has_fresh.store(true, Ordering::Release);
        tracing::debug!(?from, %to, "accepted a ring");
        // If the other process has ended, `ends` reports it.
        confirm(&ring.link)
    }

    /// Adds readers of the rings that have none.
    pub fn add_fresh(&self, readers: &mut Vec<Reader>) {
        if self.has_fresh.load(Ordering::Relaxed) && self.has_fresh.swap(false, Ordering::Acquire) {
            let reader = |ring| Reader { ring, consumer: Consumer::default(), is_fresh: true };
            readers.extend(lock(&self.fresh).drain(..).map(reader));
        }
    }

    /// Forgets the ring of a reader that came to its end.
    pub fn remove(&self, reader: &Reader) {
        let mut state = lock(&self.state);
        let _ = epoll::delete(&*self.wakes, reader.ring.link.as_fd());
        let _ = epoll::delete(&*self.ends, reader.ring.link.as_fd());
        state.rings.retain(|ring| ring.id != reader.ring.id);
        self.count.store(state.rings.len(), Ordering::Relaxed);
    }

    /// Says that this thread is about to sleep on [`wakes`](Self::wakes). Returns whether it must
    /// not sleep, because there are records. The caller calls [`wake_up`](Self::wake_up) in either
    /// case.
    pub fn fall_asleep(&self) -> bool {
        let mut state = lock(&self.state);
        state.sleepers += 1;
        state.rings.iter().for_each(|ring| fall_asleep(ring.memory.control()));
        state.rings.iter().any(|ring| ring.has_records())
    }

    /// Says that this thread is awake. `has_messages`: [`wakes`](Self::wakes) is readable, so the
    /// thread takes the messages, and must look at the rings afterwards.
    pub fn wake_up(&self, has_messages: bool) {
        let mut state = lock(&self.state);
        state.sleepers -= 1;
        if has_messages {
            for id in ready(self.wakes.as_fd()) {
                let Some(ring) = state.rings.iter().find(|ring| ring.id == id) else { continue };
                if !ring.link.drain() {
                    ring.has_ended.store(true, Ordering::Release);
                    // The end of the connection makes it readable for ever.
                    let _ = epoll::delete(&*self.wakes, ring.link.as_fd());
                }
            }
        }
        // The other sleepers may have slept through the messages that this thread took.
        let set = if state.sleepers > 0 { fall_asleep } else { wake_up };
        state.rings.iter().for_each(|ring| set(ring.memory.control()));
    }

    /// Notes the rings whose connections have ended.
    ///
    /// [`wakes`](Self::wakes) goes on to report them, because the kernel looks at the connections
    /// again when a sleeping thread runs. That thread may be the only one that reads the last
    /// records.
    pub fn collect_ended(&self) {
        let state = lock(&self.state);
        for id in ready(self.ends.as_fd()) {
            if let Some(ring) = state.rings.iter().find(|ring| ring.id == id) {
                ring.has_ended.store(true, Ordering::Release);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use urxe_wire::Payload;

    use super::*;
    use crate::ring::{Endpoint, Producer, Push, Record};

    const CAPACITY: usize = 1 << 16;

    #[test]
    fn a_sleeping_thread_learns_of_the_last_records_of_a_process_that_ended() {
        let incoming = Incoming::new().unwrap();
        let [own, link] = Link::pair().unwrap();
        let (memory, file) = SharedMemory::create(CAPACITY, 1).unwrap();
        let opened = SharedMemory::open(&*file, CAPACITY, 1).unwrap();
        let at = IpAddr::from([127, 0, 0, 1]);
        let from = Endpoint { address: at, scope_id: 0, slot: 1 };
        incoming.add(Accepted { link, memory: opened, from }, at).unwrap();
        assert!(!incoming.fall_asleep());

        let record = Record { segment_size: 4, from_port: 9, traffic_class: 0, hop_limit: 64 };
        let pushed = Producer::default().push(&memory, record, b"last").unwrap();
        assert_eq!(pushed, Push::Done { wake: true });
        own.wake();
        drop(own);
        // The background thread may run before the sleeping thread does.
        incoming.collect_ended();
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let is_woken = || {
            let wakes = incoming.wakes();
            poll(&mut [PollFd::from_borrowed_fd(wakes, PollFlags::IN)], Some(&at_once)).unwrap() > 0
        };
        assert!(is_woken());
        incoming.wake_up(true);
        assert!(!is_woken(), "one wake-up is enough");

        let mut readers = Vec::new();
        incoming.add_fresh(&mut readers);
        let [reader] = &mut readers[..] else { panic!("one ring") };
        let Read::Run(run) = reader.read() else { panic!("the record is there") };
        assert_eq!(Payload::Shared(run.bytes).to_array(), Some(*b"last"));
        reader.release();
        assert!(matches!(reader.read(), Read::End));
    }
}
