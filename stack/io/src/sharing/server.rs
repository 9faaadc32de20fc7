//! The rendezvous server of a slot. The server sends the group to joining processes, takes
//! forwarded packets, and sends the list of connections to tools.
//!
//! ```text
//!   joining process ── 'J' ──> server ── table, pool ──> joining process
//!   another process ── 'F' packets ──> server       (no reply)
//!   tool ── 'C' ──> server ── a memory file with the listing ──> tool
//!   another process ── 'S', memory ──> server       (the connection stays; see `ring`)
//! ```
//! Every process has a server at one of the [places](crate::rendezvous) of its slot, so any living
//! process can serve a joining one. Both ends check that the other one belongs to this
//! user, and neither reads from nor sends to others.
//!
//! A server replies with its [`LibraryCopy`] to a request that it does not know. So a process of
//! another version can name both versions.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, fstat, memfd_create};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use super::forward::{self, FORWARD};
use super::group::Group;
use crate::rendezvous::{
    self, Identity, LIBRARY, LibraryCopy, Listener, MAX_DESCRIPTION, NotConnected,
    PROTOCOL as VERSION, SharedAddress, owner_of,
};
use crate::ring::{RING, RingOffer};
use crate::sys::fork::{CloseOnFork, close_all_on_fork, close_on_fork};
use crate::sys::unix::Peer;
use crate::sys::{clock, unix};
use urxe_types::allocate;
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
/// The most connections of other users closed by one call, more than a queue holds. Other users
/// cannot keep the queue full, because closing takes less time than connecting.
const MAX_STRANGERS: usize = 256;
/// The most messages of one connection.
const MAX_MESSAGES: usize = 256;
/// The most packets forwarded on one connection. Half of [`MAX_MESSAGES`], because a wait of the
/// server counts as a message. The server would close the connection with the other packets unread.
const MAX_FORWARDED: usize = MAX_MESSAGES / 2;
/// How long the server waits for the request of a connection. A process sends its request right
/// after connecting.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(2);
/// How long a process waits for the reply of one server, and for room in the queues of servers.
const JOIN_TIMEOUT: Duration = Duration::from_millis(250);

/// The rendezvous server of a slot.
#[derive(Debug)]
pub(super) struct RendezvousServer {
    listener: Listener,
}

impl RendezvousServer {
    /// Opens the server of a claimed slot.
    ///
    /// # Errors
    /// As [`Listener::open`].
    pub fn open(address: SharedAddress, slot: u8) -> Result<Self, Errno> {
        Ok(Self { listener: Listener::open(address, slot, Identity::own())? })
    }

    /// Serves the connections that wait. Forwarded packets go to `sink`, and offers of rings to
    /// `rings`; `listing` returns the listing for tools. Never blocks for longer than a few
    /// milliseconds.
    pub fn serve(
        &self,
        group: &Group,
        buffer: &mut Vec<u8>,
        mut sink: impl FnMut(&Datagrams<'_>),
        mut rings: impl FnMut(RingOffer),
        listing: impl Fn() -> Vec<u8>,
    ) {
        let identity = Identity::own();
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (mut served, mut strangers) = (0, 0);
        while served < MAX_CONNECTIONS && strangers < MAX_STRANGERS {
            let Ok(connection) = close_on_fork(|| accept_with(&self.listener, flags)) else {
                return;
            };
            if unix::peer(&*connection).is_ok_and(|peer| identity.has_own_id(peer)) {
                let passed = serve_one(&connection, group, buffer, &mut sink, &listing);
                if let Some((length, descriptors)) = passed
                    && let Some(offer) = RingOffer::new(connection, &buffer[..length], descriptors)
                {
                    rings(offer);
                }
                served += 1;
            } else {
                strangers += 1;
            }
        }
    }
}

impl AsFd for RendezvousServer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// Serves a connection. Returns the length of the message in `buffer` and its descriptors, if it
/// offers a ring.
fn serve_one(
    connection: &OwnedFd,
    group: &Group,
    buffer: &mut Vec<u8>,
    sink: &mut impl FnMut(&Datagrams<'_>),
    listing: &impl Fn() -> Vec<u8>,
) -> Option<(usize, Vec<CloseOnFork<OwnedFd>>)> {
    let length = forward::HEADER_LEN + 65_536;
    if let Err(error) = allocate::reserve(buffer, length.saturating_sub(buffer.len())) {
        // The other process finds its connection closed.
        tracing::warn!(%error, "cannot read a message of another process");
        return None;
    }
    buffer.resize(length, 0);
    let deadline = clock::now() + REQUEST_TIMEOUT;
    for _ in 0..MAX_MESSAGES {
        // Only an offer of a ring has descriptors; dropping the vector closes others.
        let mut received = Ok(0);
        let descriptors = close_all_on_fork(|| {
            let mut descriptors = Vec::new();
            received = unix::receive(connection, buffer, &mut descriptors, false);
            Ok::<_, Errno>(descriptors)
        });
        match received {
            Ok(0) => return None,
            Ok(length) if buffer[0] == FORWARD => {
                if let Some(datagrams) = forward::parse(&buffer[..length]) {
                    sink(&datagrams);
                }
            }
            Ok(length) if buffer[0] == RING => return Some((length, descriptors.ok()?)),
            Ok(length) => {
                if let Err(errno) = answer(connection, &buffer[..length], group, listing) {
                    let address = group.address;
                    tracing::warn!(%errno, "cannot reply to a process of {address}");
                }
                return None;
            }
            Err(Errno::AGAIN) if wait_readable(connection, deadline) => {}
            Err(_) => return None,
        }
    }
    None
}

/// Replies to a request.
fn answer(
    connection: &OwnedFd,
    request: &[u8],
    group: &Group,
    listing: &impl Fn() -> Vec<u8>,
) -> Result<(), Errno> {
    match *request {
        [JOIN, VERSION] => {
            group.has_been_shared.store(true, Ordering::Relaxed);
            let [end_in, end_out] = group.pool.descriptors();
            let descriptors = [group.table.descriptor(), end_in, end_out];
            unix::send(connection, &[&[JOIN_REPLY, VERSION]], &descriptors)
        }
        [CONNECTIONS, VERSION] => answer_listing(connection, &listing()),
        _ => unix::send(connection, &[&LibraryCopy::own().message()], &[]),
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
/// `ETIMEDOUT` if the process does not reply within 250 ms, such as a stopped process. `EPROTO` if
/// its version does not support listings.
pub fn listing_of(address: IpAddr, scope_id: u32, slot: u8) -> Result<Vec<u8>, Errno> {
    let address = SharedAddress::new(address, scope_id);
    let patience = clock::now() + JOIN_TIMEOUT;
    let result = request(address, slot, CONNECTIONS, CONNECTIONS, patience);
    let [file] = result.map_err(|refusal| match refusal {
        Refusal::NotConnected(NotConnected { stranger: Some(_), .. }) => Errno::ACCESS,
        Refusal::NotConnected(NotConnected { errno, .. }) | Refusal::NoReply(_, errno) => errno,
        Refusal::OtherVersion(_) => Errno::PROTO,
    })?;
    let length =
        usize::try_from(fstat(&file)?.st_size).ok().filter(|length| *length <= MAX_LISTING);
    let bytes = allocate::slice(0, length.ok_or(Errno::FBIG)?);
    let mut bytes = bytes.map_err(|_| Errno::NOMEM)?.into_vec();
    let mut read = 0;
    while read < bytes.len() {
        match rustix::io::pread(&file, &mut bytes[read..], read as u64)? {
            0 => return Err(Errno::PROTO),
            more => read += more,
        }
    }
    Ok(bytes)
}

/// Describes the copy of this library in the process with `slot` on the address.
pub(super) fn library_of(address: SharedAddress, slot: u8) -> Option<LibraryCopy> {
    let patience = clock::now() + JOIN_TIMEOUT;
    match request::<0>(address, slot, LIBRARY, LIBRARY, patience) {
        Err(Refusal::OtherVersion(copy)) => Some(copy),
        _ => None,
    }
}

/// The processes that did not give the group.
#[derive(Debug, Default)]
pub(super) struct NotGiven {
    /// A process of this user listens, but does not reply.
    pub silent: Option<Owner>,
    /// A process of this user has another version of the library.
    pub other_version: Option<LibraryCopy>,
    /// A process of another user has the name of a server.
    pub stranger: Option<Owner>,
}

/// Requests the group from one rendezvous server after the other.
pub(super) fn request_group(address: SharedAddress) -> Result<Box<Group>, NotGiven> {
    let mut refused = NotGiven::default();
    let patience = clock::now() + JOIN_TIMEOUT;
    for slot in 0..MAX_PROCESS_SLOTS {
        match request(address, slot, JOIN, JOIN_REPLY, patience) {
            Ok(descriptors) => return Ok(Box::new(Group::passed(address, descriptors))),
            Err(Refusal::NotConnected(NotConnected { stranger, .. })) => {
                refused.stranger = refused.stranger.or_else(|| stranger.map(owner_of));
            }
            Err(Refusal::OtherVersion(copy)) => refused.other_version = Some(copy),
            Err(Refusal::NoReply(peer, errno)) => {
                tracing::debug!(%errno, slot, "no reply from a rendezvous server of {address}");
                refused.silent = refused.silent.or(Some(owner_of(peer)));
            }
        }
    }
    Err(refused)
}

/// Why a server did not give the requested descriptors.
enum Refusal {
    /// No process of this user listens.
    NotConnected(NotConnected),
    /// The server does not reply (`ETIMEDOUT`), or replies with something else.
    NoReply(Peer, Errno),
    /// The server does not know the request, or the request was for this description.
    OtherVersion(LibraryCopy),
}

/// Sends `question` to the server of `slot`. Returns the `COUNT` descriptors that come with
/// `expected`.
///
/// On a busy machine this thread may lose the processor between connecting and sending, for longer
/// than the server waits. The server has closed the connection then, so this function connects
/// again. Until `patience`, it also waits for room in the queue of the server.
fn request<const COUNT: usize>(
    address: SharedAddress,
    slot: u8,
    question: u8,
    expected: u8,
    patience: Time,
) -> Result<[CloseOnFork<OwnedFd>; COUNT], Refusal> {
    let identity = Identity::own();
    let deadline = clock::now() + JOIN_TIMEOUT;
    loop {
        let (connection, peer) = match rendezvous::connect(address, slot, identity) {
            Ok(connected) => connected,
            Err(full) if full.errno == Errno::AGAIN && clock::now() < patience => {
                std::thread::sleep(REQUEST_TIMEOUT);
                continue;
            }
            Err(failed) => return Err(Refusal::NotConnected(failed)),
        };
        match exchange(&connection, question, expected, deadline) {
            Err(errno) if is_disconnected(errno) && clock::now() < deadline => {
                std::thread::sleep(REQUEST_TIMEOUT)
            }
            Err(errno) if is_disconnected(errno) => {
                return Err(Refusal::NoReply(peer, Errno::TIMEDOUT));
            }
            Err(errno) => return Err(Refusal::NoReply(peer, errno)),
            Ok(Reply::Library(copy)) => return Err(Refusal::OtherVersion(copy)),
            // Fewer descriptors than expected: this process may have reached its limit.
            Ok(Reply::Descriptors(passed)) => {
                return passed.try_into().map_err(|_| Refusal::NoReply(peer, Errno::MFILE));
            }
        }
    }
}

/// Returns whether the server closed the connection before reading everything.
fn is_disconnected(errno: Errno) -> bool {
    matches!(errno, Errno::PIPE | Errno::CONNRESET)
}

/// The reply of a server.
enum Reply {
    /// The expected reply, with these descriptors.
    Descriptors(Vec<CloseOnFork<OwnedFd>>),
    /// The description of the server's library.
    Library(LibraryCopy),
}

/// Sends one request and receives its reply.
///
/// # Errors
/// `ETIMEDOUT` if the server does not reply, `EPIPE` or `ECONNRESET` if it [closed the
/// connection](is_disconnected) before it read the request, `EPROTO` if after.
fn exchange(
    connection: &OwnedFd,
    question: u8,
    expected: u8,
    deadline: Time,
) -> Result<Reply, Errno> {
    unix::send(connection, &[&[question, VERSION]], &[])?;
    if !wait_readable(connection, deadline) {
        return Err(Errno::TIMEDOUT);
    }
    let mut answer = [0; MAX_DESCRIPTION];
    let mut length = 0;
    let passed = close_all_on_fork(|| {
        let mut descriptors = Vec::with_capacity(unix::MAX_DESCRIPTORS);
        length = unix::receive(connection, &mut answer, &mut descriptors, false)?;
        Ok::<_, Errno>(descriptors)
    })?;
    match &answer[..length] {
        [] => Err(Errno::PROTO),
        [first, VERSION] if *first == expected => Ok(Reply::Descriptors(passed)),
        other => LibraryCopy::parse(other).map(Reply::Library).ok_or(Errno::PROTO),
    }
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
    let identity = Identity::own();
    let connect = || match rendezvous::connect(address, slot, identity) {
        Ok((connection, _)) => Ok(connection),
        Err(failed) => Err(failed.stranger.map_or(failed.errno, |_| Errno::ACCESS)),
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
