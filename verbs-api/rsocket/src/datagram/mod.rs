//! SOCK_DGRAM sockets.
//!
//! A SOCK_DGRAM is a UDP socket with one queue pair for each local address from which it sends. The
//! first datagram to a peer goes over UDP and carries the number of the local queue pair. The peer
//! answers with its own number, and later datagrams go from queue pair to queue pair. Each datagram
//! names the sender's address in a header, because programs need the address and not the number of
//! a queue pair. [`peers`] says when an answer is believed.

mod destination;
mod peers;

use std::collections::VecDeque;
use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use libc::pollfd;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use urxe_stack::allocate;
use urxe_stack::cq::Wake;
use urxe_stack::driver::eventfd::EventFd;
use urxe_stack::qp::work_request::AhHandle;
use urxe_stack::sync::lock;
use urxe_stack::sys::poll::poll;
use urxe_wire::Gid;

use self::destination::{Arrived, DatagramQp, SLOT};
use self::peers::{MAX_ANSWERED, MAX_AWAITING, Peers, Route};
use crate::config::Config;
use crate::error::{Result, errno};
use crate::iovec::{GatherList, ScatterList};
use crate::numbers::numbered;
use crate::options::{Flags, Options, Wait};
use crate::poll_waiters;
use crate::process::Process;
use crate::protocol::datagram::{UdpHeader, UdpOp};
use crate::service::{Service, Watched};

/// Maximum number of datagrams that wait for the program.
const MAX_PENDING: usize = 1024;

/// A datagram socket.
pub struct Datagram {
    process: &'static dyn Process,
    udp: OwnedFd,
    /// An epoll descriptor. It becomes readable on an event of a queue pair and on a datagram over
    /// UDP.
    ready: OwnedFd,
    udp_ready: EventFd,
    state: Mutex<State>,
    pub options: Mutex<Options>,
    pub flags: Flags,
}

struct State {
    /// The socket has an address, or has sent a datagram.
    is_started: bool,
    /// Another thread closes the socket, or has closed it. Calls that wait then end.
    is_closed: bool,
    /// The only peer of a connected socket, and the place of its queue pair.
    connected: Option<(SocketAddr, usize)>,
    qps: Vec<DatagramQp>,
    peers: Peers<AhHandle>,
    pending: VecDeque<PendingDatagram>,
}

impl State {
    /// Fails with EBADF after the socket was closed.
    const fn check_open(&self) -> Result<()> {
        if self.is_closed { Err(Errno::BADF) } else { Ok(()) }
    }
}

enum PendingDatagram {
    /// The data is in a receive buffer.
    Received(usize, Arrived),
    /// The datagram came over UDP.
    Copied(SocketAddr, Vec<u8>),
}

impl Datagram {
    pub fn new(process: &'static dyn Process, family: c_int) -> Result<Arc<Self>> {
        let domain =
            if family == libc::AF_INET6 { AddressFamily::INET6 } else { AddressFamily::INET };
        let udp = rustix::net::socket_with(domain, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        let udp = numbered(udp)?;
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let udp_ready = EventFd::new()?;
        epoll::add(&ready, &udp_ready, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        Ok(Arc::new(Self {
            process,
            udp,
            ready,
            udp_ready,
            state: Mutex::new(State {
                is_started: false,
                is_closed: false,
                connected: None,
                qps: Vec::new(),
                peers: Peers::new(MAX_AWAITING, MAX_ANSWERED),
                pending: VecDeque::new(),
            }),
            options: Mutex::new(Options::new(Config::get().sizes)),
            flags: Flags::default(),
        }))
    }

    pub fn fd(&self) -> RawFd {
        self.udp.as_raw_fd()
    }

    /// Returns a descriptor that becomes readable when the socket may have a datagram or room.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Returns whether the buffers exist.
    pub fn is_started(&self) -> bool {
        self.state().is_started
    }

    /// Returns whether a thread closes the socket, or has closed it.
    pub fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    pub fn bind(self: &Arc<Self>, address: SocketAddr) -> Result<()> {
        self.start()?;
        rustix::net::bind(&self.udp, &address)
    }

    /// Begins to receive from peers.
    pub fn start(self: &Arc<Self>) -> Result<()> {
        let mut state = self.state();
        state.check_open()?;
        if std::mem::replace(&mut state.is_started, true) {
            return Ok(());
        }
        // Under the lock, so that a thread that closes the socket ends the watch.
        Service::get().watch(self)
    }

    /// Sets the only peer of the socket.
    pub fn connect(self: &Arc<Self>, to: SocketAddr) -> Result<()> {
        self.start()?;
        let mut state = self.state();
        let place = self.qp_for(&mut state, to)?;
        state.connected = Some((to, place));
        Ok(())
    }

    /// Returns the local address and the peer's address. The UDP socket itself is not connected,
    /// because answers may come from another address than the destination.
    pub fn addresses(&self) -> Result<(SocketAddr, Option<SocketAddr>)> {
        let state = self.state();
        match state.connected {
            Some((peer, place)) => Ok((state.qps[place].local, Some(peer))),
            None => Ok((address(rustix::net::getsockname(&self.udp)?)?, None)),
        }
    }

    /// Returns the way to a destination of the program.
    fn route(&self, state: &mut State, to: SocketAddr) -> Result<Route<AhHandle>> {
        if let Some(known) = state.peers.route(to) {
            return Ok(known);
        }
        let place = self.qp_for(state, to)?;
        state.peers.await_answer(to, place);
        Ok(Route::Udp { place })
    }

    /// Returns the place of the queue pair for a destination, and makes the queue pair if needed.
    /// There is one for each address of the devices.
    fn qp_for(&self, state: &mut State, to: SocketAddr) -> Result<usize> {
        let local = self.local_for(to)?;
        if let Some(place) = state.qps.iter().position(|qp| qp.local == local) {
            return Ok(place);
        }
        let made = DatagramQp::new(self.process, local, lock(&self.options).sizes)?;
        // The queue is armed before the first datagram, so that a thread that sleeps on the socket
        // wakes up for it.
        let token = epoll::EventData::new_u64(state.qps.len() as u64 + 1);
        epoll::add(&self.ready, &made.queues, token, epoll::EventFlags::IN)?;
        state.qps.push(made);
        let place = state.qps.len() - 1;
        state.qps[place].arm();
        poll_waiters::wake_all();
        Ok(place)
    }

    /// Returns the local address for a destination, with the port of the socket.
    fn local_for(&self, to: SocketAddr) -> Result<SocketAddr> {
        let own = address(rustix::net::getsockname(&self.udp)?)?;
        if own.port() == 0 {
            // A peer can answer only to a bound port, so the system assigns one.
            rustix::net::bind(&self.udp, &SocketAddr::new(own.ip(), 0))?;
        }
        let own = address(rustix::net::getsockname(&self.udp)?)?;
        if !own.ip().is_unspecified() {
            return Ok(own);
        }
        let domain = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let probe =
            rustix::net::socket_with(domain, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        rustix::net::connect(&probe, &to)?;
        let mut found = address(rustix::net::getsockname(&probe)?)?;
        if !self.is_of_device(found.ip())? && self.is_of_device(to.ip())? {
            // On loopback the system sends from 127.0.0.1, whichever of its addresses the device
            // has.
            found = to;
        }
        found.set_port(own.port());
        Ok(found)
    }

    /// Returns whether a device has the address.
    fn is_of_device(&self, ip: IpAddr) -> Result<bool> {
        let gid = Gid::from_ip(ip);
        let devices = self.process.devices()?;
        Ok(devices.iter().any(|of| of.engine.gids().iter().any(|entry| entry.gid == gid)))
    }

    pub fn send(
        self: &Arc<Self>,
        pieces: &GatherList<'_>,
        to: Option<SocketAddr>,
        wait: Wait,
    ) -> Result<usize> {
        if to.is_some() {
            self.start()?;
        }
        let started = Instant::now();
        loop {
            let mut state = self.state();
            state.check_open()?;
            let to = to.or(state.connected.map(|(peer, _)| peer)).ok_or(Errno::NOTCONN)?;
            let (place, ah, qpn) = match self.route(&mut state, to)? {
                Route::Udp { place } => {
                    self.send_udp(&state.qps[place], to, UdpOp::Data, pieces)?;
                    return Ok(pieces.len());
                }
                Route::Qp { place, ah, qpn } => (place, ah, qpn),
            };
            if !state.qps[place].has_room() {
                self.progress(&mut state)?;
            }
            if state.qps[place].has_room() {
                state.qps[place].send(ah, qpn, pieces)?;
                return Ok(pieces.len());
            }
            drop(state);
            self.wait_for_event(wait, started)?;
        }
    }

    fn send_udp(
        &self,
        qp: &DatagramQp,
        to: SocketAddr,
        op: UdpOp,
        pieces: &GatherList<'_>,
    ) -> Result<()> {
        let mut message = UdpHeader { op, qpn: qp.qpn, from: qp.local.ip() }.to_bytes();
        if message.len() + pieces.len() > SLOT {
            return Err(Errno::MSGSIZE);
        }
        pieces.each(0, pieces.len(), |piece| {
            message.extend_from_slice(piece);
            Ok(())
        })?;
        rustix::net::sendto(&self.udp, &message, SendFlags::NOSIGNAL, &to)?;
        Ok(())
    }

    /// Receives a datagram. Returns the number of bytes stored and the sender's address.
    pub fn receive(
        &self,
        places: &mut ScatterList<'_>,
        wait: Wait,
        peeks: bool,
    ) -> Result<(usize, SocketAddr)> {
        let started = Instant::now();
        loop {
            let mut state = self.state();
            state.check_open()?;
            if !state.is_started {
                return Err(Errno::INVAL);
            }
            if state.pending.is_empty() {
                self.progress(&mut state)?;
            }
            if let Some(first) = state.pending.pop_front() {
                let (len, from) = self.copy_out(&state, &first, places)?;
                match first {
                    first if peeks => state.pending.push_front(first),
                    PendingDatagram::Received(place, arrived) => {
                        state.qps[place].post_receive(arrived.slot)?
                    }
                    PendingDatagram::Copied(..) => {}
                }
                return Ok((len, from));
            }
            drop(state);
            self.wait_for_event(wait, started)?;
        }
    }

    fn copy_out(
        &self,
        state: &State,
        what: &PendingDatagram,
        places: &mut ScatterList<'_>,
    ) -> Result<(usize, SocketAddr)> {
        match what {
            PendingDatagram::Copied(from, bytes) => Ok((places.put(bytes), *from)),
            PendingDatagram::Received(place, arrived) => {
                let len = arrived.data.len().min(places.len());
                let part = arrived.data.start..arrived.data.start + len;
                places.fill(&state.qps[*place].recv.buffer, part, 0)?;
                Ok((len, arrived.from))
            }
        }
    }

    /// Waits for an event if `wait` allows it: first by polling, then asleep.
    fn wait_for_event(&self, wait: Wait, started: Instant) -> Result<()> {
        if wait == Wait::Never {
            return Err(Errno::AGAIN);
        }
        if started.elapsed() < Config::get().polling_time {
            return Ok(());
        }
        self.arm()?;
        let [has_data, _] = self.readiness();
        if !has_data {
            let fd = pollfd { fd: self.ready.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            poll(&mut [fd], Some(Config::get().wake_up_interval))?;
        }
        self.take_events()
    }

    fn progress(&self, state: &mut State) -> Result<()> {
        let State { qps, pending, peers, .. } = state;
        for (place, qp) in qps.iter_mut().enumerate() {
            qp.progress(|qp, arrived| {
                // The sender chose the address in the header, but not the one of the packet.
                if peers.has_doubt(arrived.from, arrived.qpn)
                    && qp.source_of(&arrived) == Some(arrived.from.ip().to_canonical())
                {
                    peers.believe(arrived.from, arrived.qpn);
                }
                pending.push_back(PendingDatagram::Received(place, arrived));
            })?;
        }
        Ok(())
    }

    /// Returns whether the socket has a datagram, and whether it has room to send one.
    pub fn readiness(&self) -> [bool; 2] {
        let mut state = self.state();
        // A queue pair that failed has no datagrams.
        let _ = self.progress(&mut state);
        let has_room = state.is_started && state.qps.iter().all(DatagramQp::has_room);
        [!state.pending.is_empty(), has_room]
    }

    pub fn arm(&self) -> Result<()> {
        let mut state = self.state();
        state.qps.iter_mut().for_each(DatagramQp::arm);
        self.progress(&mut state)
    }

    pub fn take_events(&self) -> Result<()> {
        while self.udp_ready.try_take()? {}
        for qp in &mut self.state().qps {
            qp.take_event()?;
        }
        poll_waiters::wake_all();
        Ok(())
    }

    /// Receives datagrams over UDP.
    fn receive_udp(&self) {
        let mut bytes = [0; SLOT];
        loop {
            let received = rustix::net::recvfrom(&self.udp, &mut bytes, RecvFlags::DONTWAIT);
            let Ok((_, len, Some(from))) = received else { return };
            let Ok(from) = address(from) else { continue };
            if let Err(error) = self.handle_udp(from, &bytes[..len]) {
                tracing::info!(%error, "rsocket {}: {from} cannot be answered", self.fd());
            }
        }
    }

    fn handle_udp(&self, from: SocketAddr, bytes: &[u8]) -> Result<()> {
        let Some((header, used)) = UdpHeader::parse(bytes) else { return Ok(()) };
        if header.from.is_ipv4() != from.is_ipv4() {
            return Ok(());
        }
        let mut from = from;
        if from.ip().is_loopback() && header.from.is_loopback() {
            // As in `local_for`, the device may have another address than the source address.
            from.set_ip(header.from);
        }
        let mut state = self.state();
        let is_answer = header.op == UdpOp::Control;
        state.peers.hear(from, header.qpn, is_answer);
        if !is_answer {
            // The answer needs no entry, and goes only to the owner of the address.
            let place = self.qp_for(&mut state, from)?;
            self.send_udp(&state.qps[place], from, UdpOp::Control, &GatherList::new(&[]))?;
        } else if let Some(place) = state.peers.awaits(from) {
            let ah = state.qps[place].create_ah(from.ip())?;
            if let Some((place, unused)) = state.peers.add(from, place, ah, header.qpn) {
                state.qps[place].retire_ah(unused);
            }
        }
        if !is_answer && state.pending.len() < MAX_PENDING {
            // Without memory, the datagram is lost like one on the network.
            let copy = allocate::copied(&bytes[used..]).map_err(errno)?;
            state.pending.push_back(PendingDatagram::Copied(from, copy));
            drop(state);
            self.udp_ready.wake();
            poll_waiters::wake_all();
        }
        Ok(())
    }

    /// Closes the socket after the pending datagrams are sent. Wakes threads that wait.
    pub fn close(&self) {
        self.state().is_closed = true;
        self.udp_ready.wake();
        poll_waiters::wake_all();
        Service::get().unwatch(self.as_fd());
        let started = Instant::now();
        loop {
            let mut state = self.state();
            if self.progress(&mut state).is_err() || state.qps.iter().all(DatagramQp::is_idle) {
                break;
            }
            drop(state);
            if self.wait_for_event(Wait::Here, started).is_err() {
                break;
            }
        }
        let mut state = self.state();
        let State { qps, peers, .. } = &mut *state;
        for (place, ah) in peers.clear() {
            qps[place].retire_ah(ah);
        }
    }
}

impl Watched for Datagram {
    fn on_readable(self: Arc<Self>) {
        self.receive_udp();
    }
}

impl AsFd for Datagram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.udp.as_fd()
    }
}

/// Converts an address of the system.
fn address(any: rustix::net::SocketAddrAny) -> Result<SocketAddr> {
    SocketAddr::try_from(any).map_err(|_| Errno::AFNOSUPPORT)
}
