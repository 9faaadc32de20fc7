//! The rendezvous server of a slot. The server sends the group to joining processes, takes
//! forwarded packets, and sends the list of connections to tools.
//!
//! ```text
//!   joining process ── 'J' ──> server ── table, pool ──> joining process
//!   another process ── 'F' packets ──> server       (no reply)
//!   tool ── 'C' ──> server ── a memory file with the listing ──> tool
//! ```
//! Every process has a server under the abstract name of its slot, so any living process can serve
//! a joining one. The process that connects must have the same effective user; the server reads
//! nothing from others.

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
/// The request for a listing of the connections, and its reply.
const CONNECTIONS: u8 = b'C';
/// The most bytes of a listing.
const MAX_LISTING: usize = 1 << 28;
/// The most connections served by one call.
const MAX_CONNECTIONS: usize = 16;
/// The most messages of one connection.
const MAX_MESSAGES: usize = 256;
/// The most packets forwarded on one connection. Half of [`MAX_MESSAGES`], because a wait of the
/// server counts as a message. The server would close the connection with the other packets unread.
const MAX_FORWARDED: usize = MAX_MESSAGES / 2;
/// How long the server waits for the request of a connection. A process sends its request right
/// after connecting.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(2);
/// How long a process waits for the reply of one server.
const JOIN_TIMEOUT: Duration = Duration::from_millis(250);

/// The rendezvous server of a slot.
#[derive(Debug)]
pub(super) struct RendezvousServer {
    listener: CloseOnFork<OwnedFd>,
}

impl RendezvousServer {
    /// Opens the server of a claimed slot.
    ///
    /// # Errors
    /// `EADDRINUSE` while another socket has the name, such as that of a dead process's child.
    pub fn open(address: SharedAddress, slot: u8) -> Result<Self, Errno> {
        Ok(Self { listener: close_on_fork(|| unix::listen_at(&address.rendezvous_name(slot)))? })
    }

    /// Serves the connections that wait. Forwarded packets go to `sink`; `listing` returns the
    /// listing for tools. Never blocks for longer than a few milliseconds.
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
        // Descriptors are not expected here; dropping the vector closes them.
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
                    let address = group.address;
                    tracing::warn!(%errno, "cannot send the group of {address} to a process");
                }
                return;
            }
            Ok(length) if buffer[..length] == [CONNECTIONS, VERSION] => {
                if let Err(errno) = answer_listing(connection, &listing()) {
                    let address = group.address;
                    tracing::warn!(%errno, "cannot send the list of connections on {address}");
                }
                return;
            }
            Err(Errno::AGAIN) if wait_readable(connection, deadline) => {}
            _ => return,
        }
    }
}

/// Sends the listing in a memory file, because a listing may be longer than any message. The tool
/// reads the file at any time.
fn answer_listing(connection: &OwnedFd, bytes: &[u8]) -> Result<(), Errno> {
    let file = close_on_fork(|| memfd_create("urxe-listing", MemfdFlags::CLOEXEC))?;
    let mut written = 0;
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        written += rustix::io::pwrite(&file, rest, written as u64)?;
    }
    unix::send(connection, &[&[CONNECTIONS, VERSION]], &[file.as_fd()])
}

/// Returns the bytes of the connection manager's `Listing` of the process with `slot` on the
/// address.
///
/// # Errors
/// `ECONNREFUSED` if no process has the slot. `EACCES` if the process belongs to another user.
/// `ETIMEDOUT` if the process does not reply within 250 ms, such as a stopped process. `ECONNRESET`
/// or `EPROTO` if its version does not support listings.
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

/// The outcome of requesting the group.
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

/// Requests the group from one rendezvous server after the other.
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
                tracing::debug!(%errno, slot, "no reply from a rendezvous server of {address}");
                silent = silent.or(Some(owner_of(peer)));
            }
        }
    }
    silent.map_or(JoinReply::NoListener, JoinReply::NoReply)
}

/// Why a server did not give the requested descriptors.
enum Refusal {
    /// No process listens.
    NoListener(Errno),
    /// A process of another user listens.
    OtherOwner(Peer),
    /// The server does not reply (`ETIMEDOUT`), or replies with something else.
    NoReply(Peer, Errno),
}

/// Sends `question` to the server of `slot`. Returns the `COUNT` descriptors that come with
/// `expected`.
///
/// On a busy machine this thread may lose the processor between connecting and sending, for longer
/// than the server waits. The server has closed the connection then, so this function connects
/// again.
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
            // Fewer descriptors than expected: this process may have reached its limit.
            Ok(passed) => {
                return passed.try_into().map_err(|_| Refusal::NoReply(peer, Errno::MFILE));
            }
        }
    }
}

/// Returns whether the server closed the connection before reading everything.
fn is_disconnected(errno: Errno) -> bool {
    matches!(errno, Errno::PIPE | Errno::CONNRESET)
}

/// Sends one request and receives its reply.
///
/// # Errors
/// `ETIMEDOUT` if the server does not reply, `EPIPE` or `ECONNRESET` if it [closed the
/// connection](is_disconnected).
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

/// Forwards packets to the process with `slot`, and adds the number of those sent to `taken`.
///
/// # Errors
/// `ECONNREFUSED` if no process has the slot, `EAGAIN` if its queue is full.
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
    for (index, datagrams) in packets.enumerate() {
        if index > 0 && index.is_multiple_of(MAX_FORWARDED) {
            connection = connect()?;
        }
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

/// Waits until a message can be read, at most until `deadline`. Returns whether one can.
fn wait_readable(descriptor: impl AsFd, deadline: Time) -> bool {
    let timeout = clock::timespec(deadline.since_ns(clock::now()));
    let mut descriptors = [PollFd::new(&descriptor, PollFlags::IN)];
    let _ = poll(&mut descriptors, Some(&timeout));
    descriptors[0].revents().intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR)
}
