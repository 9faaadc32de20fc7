//! The desk of a slot: where newcomers get the group, where packets that came to the wrong process
//! are handed in, and where who looks is told what connections the process has.
//!
//! ```text
//!   newcomer ── 'J' ──> desk ── table, pool ──> newcomer
//!   another process ── 'F' packets ──> desk       (and no answer)
//!   who looks ── 'C' ──> desk ── a memory file with a listing ──> who looks
//! ```
//! Every process has one under the name of its slot, so any one that lives serves newcomers and
//! nobody has to take over from a dead one. Who connects must be of the same effective user; of all
//! others nothing is read.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, fstat, memfd_create};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use rustix::process::geteuid;

use super::forward::{self, FORWARD, VERSION};
use super::group::Group;
use super::shared_address::{SharedAddress, owner_of};
use crate::sys::fork::{CloseOnFork, close_on_fork};
use crate::sys::unix::Peer;
use crate::sys::{clock, unix};
use urxe_types::owner::Owner;
use urxe_types::port::Datagrams;
use urxe_types::qpn::MAX_PROCESS_SLOTS;
use urxe_types::sync::atomic::Ordering;
use urxe_types::time::Time;

const JOIN: u8 = b'J';
const JOIN_REPLY: u8 = b'W';
/// Asks for what connections there are, and answers it.
const CONNECTIONS: u8 = b'C';
/// A listing has at most so many bytes.
const MAX_LISTING: usize = 1 << 28;
/// Connections served in one go.
const MAX_CONNECTIONS: usize = 16;
/// Messages of one connection.
const MAX_MESSAGES: usize = 256;
/// How long a connection may take to say what it wants. Who connects says it at once.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(2);
/// How long a newcomer waits for one desk before it goes to another.
const JOIN_TIMEOUT: Duration = Duration::from_millis(250);

/// See the module.
#[derive(Debug)]
pub(super) struct RendezvousServer {
    listener: CloseOnFork<OwnedFd>,
}

impl RendezvousServer {
    /// Opens the desk of a slot that was claimed.
    ///
    /// # Errors
    /// `EADDRINUSE` while somebody has the name, such as a child of a dead process that kept its
    /// descriptors.
    pub fn open(address: SharedAddress, slot: u8) -> Result<Self, Errno> {
        Ok(Self { listener: close_on_fork(|| unix::listen_at(&address.rendezvous_name(slot)))? })
    }

    /// Serves who waits: newcomers, packets, which go to `sink`, and who wants what `listing`
    /// gives. Never blocks for longer than a few milliseconds.
    pub fn serve(
        &self,
        group: &Group,
        buffer: &mut Vec<u8>,
        mut sink: impl FnMut(&Datagrams<'_>),
        listing: impl Fn() -> Vec<u8>,
    ) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        for _ in 0..MAX_CONNECTIONS {
            let Ok(connection) = close_on_fork(|| accept_with(&self.listener, flags)) else {
                return;
            };
            let is_own_user =
                unix::peer(&*connection).is_ok_and(|peer| peer.uid == geteuid().as_raw());
            if is_own_user {
                serve_one(&connection, group, buffer, &mut sink, &listing);
            }
        }
    }
}

impl AsFd for RendezvousServer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

fn serve_one(
    connection: &OwnedFd,
    group: &Group,
    buffer: &mut Vec<u8>,
    sink: &mut impl FnMut(&Datagrams<'_>),
    listing: &impl Fn() -> Vec<u8>,
) {
    buffer.resize(forward::HEADER_LEN + 65_536, 0);
    let deadline = clock::now() + REQUEST_TIMEOUT;
    for _ in 0..MAX_MESSAGES {
        // Descriptors that nobody asked for are closed with the vector.
        match unix::receive(connection, buffer, &mut Vec::new(), false) {
            Ok(0) => return,
            Ok(length) if buffer[0] == FORWARD => {
                if let Some(datagrams) = forward::parse(&buffer[..length]) {
                    sink(&datagrams);
                }
            }
            Ok(length) if buffer[..length] == [JOIN, VERSION] => {
                group.has_been_shared.store(true, Ordering::Relaxed);
                let [end_in, end_out] = group.pool.descriptors();
                let descriptors = [group.table.descriptor(), end_in, end_out];
                if let Err(errno) = unix::send(connection, &[&[JOIN_REPLY, VERSION]], &descriptors)
                {
                    tracing::warn!(%errno, "could not let a process join {}", group.address);
                }
                return;
            }
            Ok(length) if buffer[..length] == [CONNECTIONS, VERSION] => {
                if let Err(errno) = answer_listing(connection, &listing()) {
                    tracing::warn!(%errno, "could not tell the connections on {}", group.address);
                }
                return;
            }
            Err(Errno::AGAIN) if wait_readable(connection, deadline) => {}
            _ => return,
        }
    }
}

/// It goes in a memory file: it may be longer than any message, and who asks reads it when it
/// likes.
fn answer_listing(connection: &OwnedFd, bytes: &[u8]) -> Result<(), Errno> {
    let file = close_on_fork(|| memfd_create("urxe-listing", MemfdFlags::CLOEXEC))?;
    let mut written = 0;
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        written += rustix::io::pwrite(&file, rest, written as u64)?;
    }
    unix::send(connection, &[&[CONNECTIONS, VERSION]], &[file.as_fd()])
}

/// What the process with `slot` tells of its connections on the address: the bytes of a
/// `Listing` of the connection manager.
///
/// # Errors
/// `ECONNREFUSED` if nobody has the slot, `EACCES` if the process is another user's, `ETIMEDOUT` if
/// it does not answer within a quarter of a second, such as one that is stopped, `ECONNRESET` or
/// `EPROTO` if it is of a version that tells nothing.
pub fn listing_of(address: IpAddr, scope_id: u32, slot: u8) -> Result<Vec<u8>, Errno> {
    let address = SharedAddress::new(address, scope_id);
    let [file] =
        request(address, slot, CONNECTIONS, CONNECTIONS).map_err(|refusal| match refusal {
            Refusal::NoListener(errno) | Refusal::NoReply(_, errno) => errno,
            Refusal::OtherOwner(_) => Errno::ACCESS,
        })?;
    let length =
        usize::try_from(fstat(&file)?.st_size).ok().filter(|length| *length <= MAX_LISTING);
    let mut bytes = vec![0; length.ok_or(Errno::FBIG)?];
    let mut read = 0;
    while read < bytes.len() {
        match rustix::io::pread(&file, &mut bytes[read..], read as u64)? {
            0 => return Err(Errno::PROTO),
            more => read += more,
        }
    }
    Ok(bytes)
}

/// What came of asking at the desks.
pub(super) enum JoinReply {
    /// The group.
    Joined(Box<Group>),
    /// A process of this user listens, but does not reply.
    NoReply(Owner),
    /// A process of another user listens.
    OtherOwner(Owner),
    /// No process listens.
    NoListener,
}

/// Asks for the group at one desk after the other.
pub(super) fn request_group(address: SharedAddress) -> JoinReply {
    let mut silent = None;
    for slot in 0..MAX_PROCESS_SLOTS {
        match request(address, slot, JOIN, JOIN_REPLY) {
            Ok(descriptors) => {
                return JoinReply::Joined(Box::new(Group::passed(address, descriptors)));
            }
            Err(Refusal::NoListener(_)) => {}
            Err(Refusal::OtherOwner(peer)) => return JoinReply::OtherOwner(owner_of(peer)),
            Err(Refusal::NoReply(peer, errno)) => {
                tracing::debug!(%errno, slot, "no answer at a desk of {address}");
                silent = silent.or(Some(owner_of(peer)));
            }
        }
    }
    silent.map_or(JoinReply::NoListener, JoinReply::NoReply)
}

/// Why a desk did not give what it was asked for.
enum Refusal {
    /// Nobody is there.
    NoListener(Errno),
    /// Who is there is another user.
    OtherOwner(Peer),
    /// Who is there does not answer (`ETIMEDOUT`), or something else.
    NoReply(Peer, Errno),
}

/// Asks `question` at the desk of `slot`; the `COUNT` descriptors that come with `expected`.
///
/// Who asks can be held up between connecting and asking, for longer than the desk is patient: on a
/// machine with more to do than processors that is nothing special. It has hung up then and not
/// heard the question, and is asked again.
fn request<const COUNT: usize>(
    address: SharedAddress,
    slot: u8,
    question: u8,
    expected: u8,
) -> Result<[CloseOnFork<OwnedFd>; COUNT], Refusal> {
    let deadline = clock::now() + JOIN_TIMEOUT;
    loop {
        let connection = close_on_fork(|| unix::connect_to(&address.rendezvous_name(slot)))
            .map_err(Refusal::NoListener)?;
        let peer = unix::peer(&*connection).map_err(Refusal::NoListener)?;
        if peer.uid != geteuid().as_raw() {
            return Err(Refusal::OtherOwner(peer));
        }
        match exchange(&connection, question, expected, deadline) {
            Err(errno) if is_disconnected(errno) && clock::now() < deadline => {
                std::thread::sleep(REQUEST_TIMEOUT)
            }
            Err(errno) if is_disconnected(errno) => {
                return Err(Refusal::NoReply(peer, Errno::TIMEDOUT));
            }
            Err(errno) => return Err(Refusal::NoReply(peer, errno)),
            // Fewer: this process may have no more descriptors.
            Ok(passed) => {
                return passed.try_into().map_err(|_| Refusal::NoReply(peer, Errno::MFILE));
            }
        }
    }
}

/// Whether a desk hung up before it heard all that it was told.
fn is_disconnected(errno: Errno) -> bool {
    matches!(errno, Errno::PIPE | Errno::CONNRESET)
}

/// One question and its answer.
///
/// # Errors
/// `ETIMEDOUT` if the desk does not answer, `EPIPE` or `ECONNRESET` if it [hung up](is_disconnected).
fn exchange(
    connection: &OwnedFd,
    question: u8,
    expected: u8,
    deadline: Time,
) -> Result<Vec<CloseOnFork<OwnedFd>>, Errno> {
    unix::send(connection, &[&[question, VERSION]], &[])?;
    if !wait_readable(connection, deadline) {
        return Err(Errno::TIMEDOUT);
    }
    let mut answer = [0; 2];
    let passed = crate::sys::fork::close_all_on_fork(|| {
        let mut descriptors = Vec::with_capacity(unix::MAX_DESCRIPTORS);
        unix::receive(connection, &mut answer, &mut descriptors, false)?;
        Ok::<_, Errno>(descriptors)
    })?;
    if answer == [expected, VERSION] { Ok(passed) } else { Err(Errno::PROTO) }
}

/// Hands packets to the process with `slot`, and counts those that it has in `taken`.
///
/// # Errors
/// `ECONNREFUSED` if nobody has the slot, `EAGAIN` if its queue is full.
pub(super) fn forward_packets<'a>(
    address: SharedAddress,
    slot: u8,
    packets: impl Iterator<Item = Datagrams<'a>>,
    taken: &mut usize,
) -> Result<(), Errno> {
    let connect = || {
        let connection = close_on_fork(|| unix::connect_to(&address.rendezvous_name(slot)))?;
        let is_own_user = unix::peer(&*connection)?.uid == geteuid().as_raw();
        is_own_user.then_some(connection).ok_or(Errno::ACCESS)
    };
    let mut connection = connect()?;
    for datagrams in packets {
        let header = forward::header(&datagrams);
        let message = [&header[..], datagrams.bytes];
        match unix::send(&*connection, &message, &[]) {
            Err(errno) if is_disconnected(errno) => {
                connection = connect()?;
                unix::send(&*connection, &message, &[])?;
            }
            sent => sent?,
        }
        *taken += 1;
    }
    Ok(())
}

/// Waits until there is something to read, at most until `deadline`; whether there is.
fn wait_readable(descriptor: impl AsFd, deadline: Time) -> bool {
    let timeout = clock::timespec(deadline.since_ns(clock::now()));
    let mut descriptors = [PollFd::new(&descriptor, PollFlags::IN)];
    let _ = poll(&mut descriptors, Some(&timeout));
    descriptors[0].revents().intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR)
}
