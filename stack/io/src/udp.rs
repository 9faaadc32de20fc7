//! The UDP port: an unprivileged, unconnected socket bound to one address and port 4791, and the
//! sockets that it sends from.
//!
//! Requirements on the socket, measured with Linux and its rxe:
//!
//! - *Bound to one address.* The ICRC covers the source address, which must therefore be known
//!   before sending. The ICRC also covers the address of arrival, which needs no control message
//!   then.
//! - *Unconnected, path-MTU discovery DO.* Only then is the IPv4 identification predictable: 0 with
//!   DF for a single datagram, the segment's index for the segments of a GSO send. The ICRC covers
//!   the identification.
//! - *UDP checksums on.* GSO needs them, and receivers' GRO merges only datagrams that have them.
//! - *Receive buffer as large as the system grants.* The default buffer holds 25 packets of 4 KiB.
//!
//! Without GSO every IPv4 datagram has the identification 0, so a run of several packets cannot be
//! sent: [`UdpPort::max_run_segments`] is then 1. IPv6 has no identification, so its runs are then
//! sent packet by packet.
//!
//! Sources: udp(7), ip(7), ipv6(7); the kernel's net/ipv4/udp.c (`udp_send_skb`) and
//! net/ipv4/ip_output.c; IBTA annex A17 (RoCEv2).

mod config;
mod counters;
mod errors;
mod receive;
mod senders;

#[cfg(test)]
pub(crate) mod tests;

use std::borrow::Cow;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use socket2::Socket;
use urxe_wire::packet::ICRC_LEN;
use urxe_wire::{IcrcSeed, ROCE_PORT};

pub use config::{OpenPortError, UdpConfig, free_loopback_address};
pub use counters::UdpCounters;
pub use errors::{PathError, PathErrorReason};
pub use receive::ReceiveBuffers;

pub(super) use config::{bind_alone, bind_shared, check_address, failed, set_shared};

use crate::sys::address::RawAddress;
use crate::sys::control::Control;
use crate::sys::fork::CloseOnFork;
use crate::sys::{clock, message, socket};
use counters::Counters;
use errors::LogLimit;
use senders::Senders;
use urxe_types::allocate;
use urxe_types::port::{Datagrams, PacketTap, Run, SendOutcome, Transmit};
use urxe_types::sync::Arc;
use urxe_types::sync::atomic::{AtomicBool, Ordering};

/// The limits of a run.
pub use urxe_types::port::{MAX_RUN_BYTES, MAX_RUN_SEGMENTS};

/// How long a send waits for room in the socket's send buffer.
const SEND_WAIT: Duration = Duration::from_millis(2);
/// How often a call is repeated that reported an earlier datagram's error.
const MAX_STALE_ERRORS: usize = 4;

/// A UDP socket on port 4791 that carries RoCEv2. See the [module](self).
#[derive(Debug)]
pub struct UdpPort {
    socket: CloseOnFork<Socket>,
    senders: Senders,
    address: IpAddr,
    scope_id: u32,
    interface: u32,
    receive_buffer: usize,
    send_buffer: usize,
    gso: AtomicBool,
    gro: bool,
    ignores_icmp_mtu: bool,
    takes_icmp_errors: bool,
    errors_pending: AtomicBool,
    is_address_missing: AtomicBool,
    counters: Counters,
    log_limit: LogLimit,
    tap: Option<Arc<dyn PacketTap>>,
}

impl UdpPort {
    /// Returns the UDP source port for packets to the process slot `peer_slot` of any peer. Opens a
    /// socket the first time. If that fails, returns the port's own number; receivers may then
    /// merge the packets with others.
    pub fn port_towards(&self, peer_slot: u8) -> u16 {
        self.senders.port_towards(peer_slot, self).unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot open a sending socket: using source port {ROCE_PORT}");
            ROCE_PORT
        })
    }

    /// Returns the address that the socket is bound to: the source of every packet that it sends.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns the interface index for link-local peers; 0 if the address is not link-local.
    #[must_use]
    pub fn scope_id(&self) -> u32 {
        self.scope_id
    }

    /// Returns the bytes of kernel memory for received datagrams, as SO_RCVBUF reads: twice the
    /// granted value, because the kernel counts its own overhead.
    #[must_use]
    pub fn receive_buffer(&self) -> usize {
        self.receive_buffer
    }

    /// Returns the bytes of kernel memory for datagrams to be sent, as SO_SNDBUF reads.
    #[must_use]
    pub fn send_buffer(&self) -> usize {
        self.send_buffer
    }

    /// Returns whether one call sends several packets (GSO). Becomes false permanently if the
    /// network device refuses GSO.
    #[must_use]
    pub fn gso(&self) -> bool {
        self.gso.load(Ordering::Relaxed)
    }

    /// Returns whether the socket merges received datagrams (GRO).
    #[must_use]
    pub fn gro(&self) -> bool {
        self.gro
    }

    /// Returns whether the socket ignores the path MTU of ICMP messages, which any host can forge.
    #[must_use]
    pub fn ignores_icmp_mtu(&self) -> bool {
        self.ignores_icmp_mtu
    }

    /// Returns whether the socket takes ICMP errors of sent packets.
    #[must_use]
    pub fn takes_icmp_errors(&self) -> bool {
        self.takes_icmp_errors
    }

    /// Returns the counters of the port. Makes one system call, for the kernel's drop counter.
    #[must_use]
    pub fn counters(&self) -> UdpCounters {
        let dropped = socket::memory(&self.socket).ok().map(|memory| memory.dropped);
        self.counters.read(dropped)
    }

    /// Returns whether the error queue is known to have entries. Then
    /// [`drain_errors`](Self::drain_errors) is due, as after EPOLLERR. Queued errors take room from
    /// the receive buffer.
    #[must_use]
    pub fn errors_pending(&self) -> bool {
        self.errors_pending.load(Ordering::Relaxed)
    }

    /// Empties the error queues of the port's sockets. Counts and logs each error and passes it to
    /// `sink`. Returns the number of errors.
    pub fn drain_errors(&self, mut sink: impl FnMut(PathError)) -> usize {
        // Cleared first: an error that arrives during the loop sets it again.
        self.errors_pending.store(false, Ordering::Relaxed);
        let mut count = 0;
        // The queue is in the receive buffer and thus finite. The limit bounds the loop if errors
        // keep arriving.
        for socket in std::iter::once(&*self.socket).chain(self.senders.sockets()) {
            while count < 4096 {
                let error = match message::receive_error(socket) {
                    Ok(queued) => PathError::from_queued(&queued),
                    Err(Errno::INTR) => continue,
                    Err(_) => break,
                };
                count += 1;
                self.counters.count_path_error(&error);
                if let Some(suppressed) = self.log_limit.pass(clock::now()) {
                    tracing::warn!(local = %self.address, suppressed, "{error}");
                }
                sink(error);
            }
        }
        count
    }

    /// Receives waiting datagrams without blocking, at most as many as `buffers` has room for.
    /// [`ReceiveBuffers::iter`] returns them. Returns their number, which is 0 if none waits. Never
    /// allocates.
    ///
    /// # Errors
    /// The system's, except that none waits. Errors of datagrams sent earlier are not returned:
    /// they set [`errors_pending`](Self::errors_pending).
    pub fn receive(&self, buffers: &mut ReceiveBuffers) -> io::Result<usize> {
        self.receive_from(&self.socket, buffers)
    }

    /// Receives as [`receive`](Self::receive) does, from another shared socket on the address.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub(super) fn receive_from(
        &self,
        socket: &Socket,
        buffers: &mut ReceiveBuffers,
    ) -> io::Result<usize> {
        for _ in 0..MAX_STALE_ERRORS {
            match buffers.fill(socket, self.address, &self.counters) {
                Ok(count) => {
                    self.tap_received(buffers);
                    return Ok(count);
                }
                // A forked child has no socket here ([`crate::sys::fork`]).
                Err(Errno::AGAIN | Errno::NOTSOCK) => return Ok(0),
                Err(Errno::INTR) => {}
                Err(errno) if is_path_error(errno) => {
                    self.errors_pending.store(true, Ordering::Relaxed)
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        // Errors arrive faster than this loop takes them. The caller drains them next.
        Ok(0)
    }

    /// Records that the interface lost or regained the address. Without the address the socket
    /// sends and receives nothing.
    pub fn set_address_missing(&self, is_address_missing: bool) {
        self.is_address_missing.store(is_address_missing, Ordering::Relaxed);
    }

    /// Returns whether the interface lost the address, as far as the device knows.
    pub fn is_address_missing(&self) -> bool {
        self.is_address_missing.load(Ordering::Relaxed)
    }

    /// Returns the number of packets of `run` if the socket would accept it.
    pub fn accepts<T>(&self, run: &Run<'_, T>) -> Option<usize> {
        let is_possible = run.from == self.address
            && run.to.is_ipv4() == self.address.is_ipv4()
            && !self.is_address_missing();
        segments_within_limits(run).filter(|_| is_possible)
    }

    /// Records that `run` is sent to a port of this process without the socket. Returns whether the
    /// socket would have accepted the run.
    pub fn record_sent(&self, run: &Run<'_>) -> bool {
        let Some(segments) = self.accepts(run) else { return false };
        self.counters.sent_directly.add(segments as u64);
        self.count_sent(segments);
        self.show_sent(run);
        true
    }

    /// Sends `run` of `segments` packets by `write`, through memory that another process shares.
    /// The capture has the run before that, because the response may arrive at once.
    ///
    /// # Errors
    /// The error of `write`.
    pub fn send_in_memory<E>(
        &self,
        run: &Run<'_>,
        segments: usize,
        write: impl FnOnce() -> Result<SendOutcome, E>,
    ) -> Result<SendOutcome, E> {
        self.show_sent(run);
        write().inspect(|outcome| self.count_in_memory(*outcome, segments))
    }

    /// Counts a run that was sent through memory that another process shares.
    pub fn count_in_memory(&self, outcome: SendOutcome, segments: usize) {
        match outcome {
            SendOutcome::Sent => {
                self.counters.sent_in_memory.add(segments as u64);
                self.count_sent(segments);
            }
            SendOutcome::Dropped => self.counters.memory_full.add(1),
        }
    }

    fn count_sent(&self, segments: usize) {
        self.counters.sent_runs.add(1);
        self.counters.sent_packets.add(segments as u64);
    }

    /// Shows a run without ICRCs to the capture.
    fn show_sent(&self, run: &Run<'_>) {
        if let Some(tap) = &self.tap {
            let bytes = with_icrcs(run.bytes, run.segment_size, (run.from, run.from_port, run.to));
            tap.sent(clock::wall_ns(), &Run { bytes: &bytes, ..*run });
        }
    }

    /// Records that `datagrams` arrive without the socket: from a port of this process, or through
    /// memory that another process shares.
    pub fn record_received(&self, datagrams: &Datagrams<'_>) {
        self.count_received(datagrams);
        if let Some(tap) = &self.tap {
            let Datagrams { from, from_port, to, bytes, segment_size, .. } = *datagrams;
            let bytes = with_icrcs(bytes, segment_size, (from, from_port, to));
            tap.received(clock::wall_ns(), &Datagrams { bytes: &bytes, ..*datagrams });
        }
    }

    /// Counts `datagrams` that arrive as in [`record_received`](Self::record_received), and does
    /// not show them to a capture.
    pub fn count_received<T>(&self, datagrams: &Datagrams<'_, T>) {
        self.counters.received_datagrams.add(1);
        self.counters.received_packets.add(datagrams.segments().len() as u64);
        self.counters.received_bytes.add(datagrams.bytes.len() as u64);
    }

    /// Returns whether a capture observes the port.
    pub fn is_observed(&self) -> bool {
        self.tap.is_some()
    }

    fn tap_received(&self, buffers: &ReceiveBuffers) {
        if let Some(tap) = &self.tap {
            let now_ns = clock::wall_ns();
            for datagrams in buffers.iter() {
                tap.received(now_ns, &datagrams);
            }
        }
    }

    /// Returns the socket address for `to`, if the socket can reach addresses of that IP version.
    fn destination(&self, to: IpAddr) -> Option<RawAddress> {
        match (self.address, to.to_canonical()) {
            (IpAddr::V4(_), v4 @ IpAddr::V4(_)) => {
                Some(RawAddress::new(SocketAddr::new(v4, ROCE_PORT)))
            }
            (IpAddr::V6(_), IpAddr::V6(v6)) => {
                let scope_id = if needs_scope(v6) { self.scope_id } else { 0 };
                Some(RawAddress::new(SocketAddr::V6(SocketAddrV6::new(v6, ROCE_PORT, 0, scope_id))))
            }
            _ => None,
        }
    }

    /// Returns the control messages of a send: fields of the IP header, and the segment size if GSO
    /// segments the payload.
    fn send_control(&self, run: &Run<'_>, segment_size: Option<u16>) -> Control {
        let mut control = Control::EMPTY;
        let (level, tos, ttl) = match self.address {
            IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS, libc::IP_TTL),
            IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT),
        };
        // Values that the sockets have anyway are left out: a control message costs a hundredth of
        // a short message.
        let own = [(tos, run.traffic_class, config::USUAL_TRAFFIC_CLASS), (ttl, run.hop_limit, 0)];
        for (kind, value, own) in own {
            if value != own {
                control.push(level, kind, &i32::from(value).to_ne_bytes());
            }
        }
        if let Some(size) = segment_size {
            control.push(libc::SOL_UDP, libc::UDP_SEGMENT, &size.to_ne_bytes());
        }
        control
    }

    /// Sends a run that is within the limits.
    fn send_run(
        &self,
        socket: &Socket,
        to: &RawAddress,
        run: &Run<'_>,
        segments: usize,
    ) -> SendOutcome {
        if segments == 1 {
            let control = self.send_control(run, None);
            return self.send(socket, segments, || {
                message::send(socket, to, &control, run.bytes).map(|_| 1)
            });
        }
        if self.gso() {
            // At most MAX_RUN_BYTES, so the size fits.
            let control = self.send_control(run, Some(run.segment_size as u16));
            let outcome = self.send(socket, segments, || {
                message::send(socket, to, &control, run.bytes).map(|_| segments)
            });
            if outcome == SendOutcome::Sent || self.gso() {
                return outcome;
            }
        }
        if self.address.is_ipv4() {
            self.counters.sent_over_limit.add(1);
            return SendOutcome::Dropped;
        }
        let control = self.send_control(run, None);
        let mut done = 0;
        self.send(socket, segments, || {
            while done < segments {
                done += message::send_each(socket, to, &control, run.segments().skip(done))?;
            }
            Ok(segments)
        })
    }

    /// Repeats the call until success, final failure or the end of the wait. Counts the outcome.
    fn send(
        &self,
        socket: &Socket,
        segments: usize,
        mut call: impl FnMut() -> Result<usize, Errno>,
    ) -> SendOutcome {
        let mut stale_errors = 0;
        let mut deadline = None;
        loop {
            match call() {
                Ok(_) => {
                    self.counters.sent_runs.add(1);
                    self.counters.sent_packets.add(segments as u64);
                    return SendOutcome::Sent;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.counters.send_waits.add(1);
                    let now = clock::now();
                    let deadline = *deadline.get_or_insert(now + SEND_WAIT);
                    if now >= deadline {
                        self.counters.send_buffer_full.add(1);
                        return SendOutcome::Dropped;
                    }
                    wait_for_room(socket, deadline - now);
                }
                // A pending error of an earlier datagram makes the next call fail once in its
                // place.
                Err(errno) if is_path_error(errno) && stale_errors < MAX_STALE_ERRORS => {
                    self.errors_pending.store(true, Ordering::Relaxed);
                    stale_errors += 1;
                }
                Err(errno) => return self.refused(errno, segments),
            }
        }
    }

    /// Counts a send that failed finally.
    fn refused(&self, errno: Errno, segments: usize) -> SendOutcome {
        match errno {
            Errno::MSGSIZE => self.too_big(),
            // Kernels before 6.12 return this instead of EMSGSIZE if a GSO segment does not fit the
            // path's MTU. The limits of a run exclude its other reasons.
            Errno::INVAL if segments > 1 && self.gso() => self.too_big(),
            // The device of the route computes no checksums (before 6.11), or the route uses IPsec.
            Errno::IO if segments > 1 && self.gso() => {
                self.gso.store(false, Ordering::Relaxed);
                self.counters.gso_refused.add(1);
                tracing::warn!(
                    local = %self.address,
                    "the network device refuses UDP GSO: each packet needs a system call now"
                );
            }
            errno if is_path_error(errno) => self.counters.send_unreachable.add(1),
            _ => {
                self.counters.send_failed.add(1);
                if let Some(suppressed) = self.log_limit.pass(clock::now()) {
                    let local = self.address;
                    tracing::warn!(%local, suppressed, error = %errno, "send failed");
                }
            }
        }
        SendOutcome::Dropped
    }

    fn too_big(&self) {
        // The kernel also queued an error with the path's MTU.
        self.errors_pending.store(true, Ordering::Relaxed);
        self.counters.send_too_big.add(1);
    }
}

impl Transmit for UdpPort {
    fn transmit(&self, run: &Run<'_>) -> SendOutcome {
        let Some(segments) = segments_within_limits(run) else {
            self.counters.sent_over_limit.add(1);
            return SendOutcome::Dropped;
        };
        let socket = match run.from_port {
            ROCE_PORT => Some(&*self.socket),
            port => self.senders.with_port(port),
        };
        let Some(socket) = socket.filter(|_| run.from.to_canonical() == self.address) else {
            self.counters.sent_wrong_source.add(1);
            return SendOutcome::Dropped;
        };
        let Some(to) = self.destination(run.to) else {
            self.counters.sent_wrong_family.add(1);
            return SendOutcome::Dropped;
        };
        if let Some(tap) = &self.tap {
            tap.sent(clock::wall_ns(), run);
        }
        self.send_run(socket, &to, run, segments)
    }

    /// Returns 64 with GSO and for IPv6; 1 for IPv4 without GSO, where every datagram has the
    /// identification 0.
    fn max_run_segments(&self) -> usize {
        if self.gso() || self.address.is_ipv6() { MAX_RUN_SEGMENTS } else { 1 }
    }
}

/// Returns the packets that a run in memory would be on a wire, for a capture: with ICRCs. The flow
/// is source address, source port and destination address.
fn with_icrcs<'b>(
    bytes: &'b [u8],
    segment_size: usize,
    (from, from_port, to): (IpAddr, u16, IpAddr),
) -> Cow<'b, [u8]> {
    let Some(seed) = IcrcSeed::new(from, from_port, to, ROCE_PORT) else { return bytes.into() };
    // Without memory, the capture has the packets as they are.
    let Ok(mut copy) = allocate::copied(bytes) else { return bytes.into() };
    for (index, packet) in copy.chunks_mut(segment_size.max(1)).enumerate() {
        let Some(end) = packet.len().checked_sub(ICRC_LEN) else { continue };
        let _ = seed.append(index as u16, packet, end);
    }
    copy.into()
}

/// Returns the number of packets of `run`, if it is within the limits.
fn segments_within_limits<T>(run: &Run<'_, T>) -> Option<usize> {
    let segments =
        if run.segment_size == 0 { 0 } else { run.bytes.len().div_ceil(run.segment_size) };
    let is_within =
        segments > 0 && segments <= MAX_RUN_SEGMENTS && run.bytes.len() <= MAX_RUN_BYTES;
    is_within.then_some(segments)
}

impl AsFd for UdpPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Waits until the send buffer has room, at most for `time`.
fn wait_for_room(socket: &Socket, time: Duration) {
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) };
    let mut descriptor = [PollFd::new(socket, PollFlags::OUT)];
    let _ = poll(&mut descriptor, Some(&timeout));
    let events = descriptor[0].revents();
    if events.contains(PollFlags::ERR) && !events.contains(PollFlags::OUT) {
        // Errors in the queue end every poll at once, so sleep instead of spinning.
        std::thread::sleep(time.min(Duration::from_micros(100)));
    }
}

/// Drops the received datagrams of a socket, at most 65,536 of them.
/// Returns their number.
pub(super) fn discard_received(socket: impl AsFd) -> usize {
    let (socket, mut count) = (socket.as_fd(), 0);
    while count < 65_536 {
        match rustix::net::recv(socket, &mut [0; 1], RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
            Ok(_) => count += 1,
            Err(Errno::INTR) => {}
            // An error of an earlier datagram.
            Err(errno) if is_path_error(errno) => while message::receive_error(socket).is_ok() {},
            Err(_) => break,
        }
    }
    while message::receive_error(socket).is_ok() {}
    count
}

/// Returns whether the address is valid on one interface only (RFC 4007).
fn needs_scope(address: Ipv6Addr) -> bool {
    address.is_unicast_link_local()
        || (address.is_multicast() && matches!(address.octets()[1] & 0xf, 1 | 2))
}

/// Returns whether an errno can come from an ICMP message about an earlier datagram
/// (`icmp_err_convert` in net/ipv4/icmp.c, `icmpv6_err_convert` in net/ipv6/icmp.c).
fn is_path_error(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::CONNREFUSED
            | Errno::HOSTUNREACH
            | Errno::NETUNREACH
            | Errno::HOSTDOWN
            | Errno::NONET
            | Errno::NOPROTOOPT
            | Errno::PROTO
            | Errno::OPNOTSUPP
            | Errno::ACCESS
            | Errno::MSGSIZE
    )
}
