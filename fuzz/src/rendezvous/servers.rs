//! The replies of a rendezvous server to a process that joins, and to a tool.

use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use arbitrary::Arbitrary;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{Errno, pwrite};
use rustix::net::{AddressFamily, SocketFlags, SocketType, accept_with, socketpair};
use urxe_stack::port::sharing::{PortSet, join, listing_of};
use urxe_stack::port::udp::{ReceiveBuffers, UdpConfig};
use urxe_stack::sys::unix::{self, MAX_DESCRIPTORS, Name};

use super::{address, server_name};

/// The largest file of a plan, in bytes.
const MAX_FILE: u64 = 1 << 16;
/// The maximum number of messages in a socket of a plan.
const MAX_QUEUED: usize = 70;

/// A server with one reply for all.
#[derive(Arbitrary, Debug)]
pub struct Server {
    is_joined: bool,
    head: u8,
    extra: Vec<u8>,
    descriptors: Vec<Descriptor>,
}

#[derive(Arbitrary, Debug)]
struct Descriptor {
    kind: u8,
    /// The size of a file, or the number of messages in a socket.
    size: u16,
    bytes: Vec<u8>,
}

impl Descriptor {
    /// Makes the descriptor. A pair of sockets has two.
    fn make(&self) -> Vec<OwnedFd> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let file = || memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("a file");
        let udp = || OwnedFd::from(UdpSocket::bind((address(1), 0)).expect("a free port"));
        match self.kind % 8 {
            0..4 => {
                let file = file();
                ftruncate(&file, u64::from(self.size) * 8 % MAX_FILE).expect("a size");
                let bytes = &self.bytes[..self.bytes.len().min(MAX_FILE as usize)];
                pwrite(&file, bytes, 0).expect("room");
                vec![file]
            }
            kind @ 4..7 => {
                let kinds = [SocketType::SEQPACKET, SocketType::SEQPACKET, SocketType::STREAM];
                let kind = kinds[usize::from(kind) - 4];
                let (into, out) =
                    socketpair(AddressFamily::UNIX, kind, flags, None).expect("two sockets");
                for nr in 0..usize::from(self.size) % MAX_QUEUED {
                    let byte = self.bytes.get(nr).copied().unwrap_or(0);
                    let passed = if byte & 1 == 0 { udp() } else { file() };
                    let passed = if byte & 2 == 0 { vec![passed] } else { Vec::new() };
                    let passed: Vec<_> = passed.iter().map(AsFd::as_fd).collect();
                    let bytes = vec![0; usize::from(byte >> 4).max(1)];
                    if unix::send(&into, &[&bytes], &passed).is_err() {
                        break;
                    }
                }
                vec![into, out]
            }
            _ => vec![udp()],
        }
    }

    /// Returns the bytes of the file, if it is one.
    fn content(&self) -> Option<Vec<u8>> {
        let size = (u64::from(self.size) * 8 % MAX_FILE) as usize;
        let mut bytes = self.bytes[..self.bytes.len().min(MAX_FILE as usize)].to_vec();
        bytes.resize(size.max(bytes.len()), 0);
        (self.kind % 8 < 4).then_some(bytes)
    }
}

impl Server {
    fn head(&self) -> Vec<u8> {
        let expected = if self.is_joined { b"W\x01" } else { b"C\x01" };
        match self.head {
            0..200 => expected.to_vec(),
            200..220 => [&expected[..], &self.extra].concat(),
            _ => self.extra.clone(),
        }
    }

    /// Lets a process of this user ask the server.
    pub fn run(&self) {
        let made: Vec<Vec<OwnedFd>> =
            self.descriptors.iter().take(4).map(Descriptor::make).collect();
        let passed: Vec<&OwnedFd> = made.iter().flatten().take(MAX_DESCRIPTORS).collect();
        let listener =
            unix::listen_at(Name::Abstract(&server_name(address(1)))).expect("the name is free");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| self.serve(&listener, &passed, &done));
            let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                if self.is_joined { self.join() } else { self.list(passed.len()) }
            }));
            done.store(true, Ordering::Relaxed);
            // A scope does not wait for the destructors of a thread, which LeakSanitizer reports.
            serving.join().expect("the server does not panic");
            asked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
    }

    /// Gives the reply to each process that asks.
    fn serve(&self, listener: &OwnedFd, passed: &[&OwnedFd], done: &AtomicBool) {
        let passed: Vec<_> = passed.iter().map(AsFd::as_fd).collect();
        let (head, flags) = (self.head(), SocketFlags::NONBLOCK | SocketFlags::CLOEXEC);
        while !done.load(Ordering::Relaxed) {
            wait(listener, 1);
            while let Ok(connection) = accept_with(listener, flags) {
                wait(&connection, 20);
                let mut question = [0; 2];
                let _ = unix::receive(&connection, &mut question, &mut Vec::new(), false);
                let _ = unix::send(&connection, &[&head], &passed);
            }
        }
    }

    fn list(&self, passed: usize) {
        let listing = listing_of(address(1), 0, 0);
        let is_listing = self.head() == b"C\x01" && passed == 1;
        match listing {
            Ok(bytes) => {
                assert!(is_listing, "{:?} is no reply", self.head());
                if let [Descriptor { kind: 0..4, .. }] = &self.descriptors[..] {
                    assert_eq!(Some(bytes), self.descriptors[0].content());
                }
            }
            Err(errno) => {
                let is_file = self.descriptors.first().is_some_and(|first| first.kind % 8 < 4);
                let may_fail = !is_listing || !is_file || errno == Errno::TIMEDOUT;
                assert!(may_fail, "{errno}");
            }
        }
    }

    fn join(&self) {
        match join(&[UdpConfig::new(address(1))], || 1) {
            Ok(PortSet { slot, ports, members, .. }) => {
                assert_eq!((ports.len(), members.len()), (1, 1));
                assert!(slot < 64 && ports[0].address() == address(1));
                let member = &members[0];
                assert!(member.others().iter().all(|other| *other < 64 && *other != slot));
                assert!(member.listener_of(7).is_none_or(|other| other < 64));
                if member.listen(7).is_ok() {
                    assert_eq!(member.listener_of(7), Some(slot));
                }
                let _ = (member.unlisten(7), member.is_receiver_congested(slot ^ 1));
                let mut buffers = ReceiveBuffers::new(1).expect("memory");
                let _ = member.discard_orphaned(&mut buffers, |_| false);
                member.serve(&mut Vec::new(), |_| {}, |_| {}, Vec::new);
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

fn wait(descriptor: impl AsFd, ms: i64) {
    let timeout = Timespec { tv_sec: 0, tv_nsec: ms * 1_000_000 };
    let _ = poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&timeout));
}
