//! The configuration of a UDP port, how a port is opened, and the errors of that.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::SocketFlags;
use socket2::{SockAddr, Socket};
use urxe_wire::ROCE_PORT;

use super::senders::Senders;
use super::{Counters, LogLimit, UdpPort, needs_scope};
use crate::link::gid;
use crate::rendezvous::LibraryCopy;
use crate::sys::fork::{CloseOnFork, close_on_fork};
use crate::sys::socket::{self, IntOption};
use urxe_types::errno::OsError;
use urxe_types::owner::Owner;
use urxe_types::port::PacketTap;
use urxe_types::port::groups::JoinError;
use urxe_types::sync::Arc;
use urxe_types::sync::atomic::AtomicBool;
use urxe_wire::ecn;

/// Default bytes of receive buffer to ask for. Half of that holds 992 packets of 4 KiB (measured).
/// The kernel grants at most net.core.rmem_max.
const RECEIVE_BUFFER: usize = 8 << 20;
/// Default bytes of send buffer to ask for. The kernel grants at most net.core.wmem_max.
const SEND_BUFFER: usize = 4 << 20;

/// The configuration of a [`UdpPort`].
#[derive(Clone, Debug)]
pub struct UdpConfig {
    /// The address to bind to: one of this machine's, neither a wildcard nor a group.
    pub address: IpAddr,
    /// The interface index of a link-local IPv6 address (fe80::), otherwise 0.
    pub scope_id: u32,
    /// The index of the interface that has the address. The port joins IPv6 groups and sends
    /// multicast packets there. 0 lets the system choose; IPv4 uses the address itself.
    pub interface: u32,
    /// Bytes of receive buffer to ask for; 8 MiB if `None`. The kernel grants at most
    /// net.core.rmem_max.
    pub receive_buffer: Option<usize>,
    /// Bytes of send buffer to ask for; 4 MiB if `None`. The kernel grants at most
    /// net.core.wmem_max.
    pub send_buffer: Option<usize>,
    /// Whether to send runs of several packets in one call, if the kernel can.
    pub gso: bool,
    /// Whether to receive merged datagrams, if the kernel can.
    pub gro: bool,
    /// Whether to believe the path MTU of ICMP messages. Any host can forge such a message, even
    /// without seeing a packet, and then no larger packet is sent for ten minutes.
    pub icmp_mtu: bool,
    /// Whether to take ICMP errors of sent packets, if the system can. They appear in the log, in
    /// the counters and in errors of connections.
    pub icmp_errors: bool,
    /// The observer that records the packets.
    pub tap: Option<Arc<dyn PacketTap>>,
}

impl UdpConfig {
    /// Configures a port on `address` with everything that the system grants.
    #[must_use]
    pub fn new(address: IpAddr) -> Self {
        Self {
            address,
            scope_id: 0,
            interface: 0,
            receive_buffer: None,
            send_buffer: None,
            gso: true,
            gro: true,
            icmp_mtu: false,
            icmp_errors: true,
            tap: None,
        }
    }

    /// Configures a port on `address` of the interface with index `interface`.
    #[must_use]
    pub fn on(interface: u32, address: IpAddr) -> Self {
        let is_link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        Self {
            interface,
            scope_id: if is_link_local { interface } else { 0 },
            ..Self::new(address)
        }
    }
}

urxe_types::errors! {
    /// Why a port could not be opened, and what to do.
    #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum OpenPortError {
        /// `owner`: the process that has the port, if known.
        ///
        /// `free`: a loopback address on which the port was free at that moment.
        #[error(
            "UDP port {ROCE_PORT} of {address} is taken by {}{}",
            match owner {
                Some(owner) => owner.to_string(),
                None => "another process or by the kernel's rdma_rxe".to_owned(),
            },
            match free {
                Some(free) => format!("; {free} is free"),
                None => "; no loopback address is free, because a process or rdma_rxe has the \
                         port on every address of this network namespace".to_owned(),
            }
        )]
        AddressInUse { address: IpAddr, owner: Option<Owner>, free: Option<IpAddr> } = EADDRINUSE,
        /// All slots of queue pair numbers are taken.
        ///
        /// `free`: a loopback address on which the port was free at that moment.
        #[error(
            "{address} is shared by {allowed} processes already, which is the limit{}",
            match free { Some(free) => format!("; {free} is free"), None => String::new() }
        )]
        TooManyProcesses { address: IpAddr, allowed: u8, free: Option<IpAddr> } = EADDRINUSE,
        /// Another process has there the slot that this process has on its other addresses.
        #[error("another process uses {address} with slot {slot}, which this process has on its \
                 other addresses; open the device again to get another slot")]
        SlotTaken { address: IpAddr, slot: u8 } = EADDRINUSE,
        /// The processes of an address use versions of this library that do not understand each
        /// other.
        #[error("{address} is in use by a process with urxe {other}, which does not understand \
                 urxe {own}; use one version for both, or another address")]
        OtherVersion { address: IpAddr, own: Box<LibraryCopy>, other: Box<LibraryCopy> }
            = EADDRINUSE,
        /// Two copies of this library in one process, such as one of a package and one of a wheel.
        #[error("this process has two copies of urxe, which cannot share {address}: {own}, and \
                 {other}; remove one of them")]
        SecondCopy { address: IpAddr, own: Box<LibraryCopy>, other: Box<LibraryCopy> } = EBUSY,
        #[error("no interface has the address {address}; `ip address` lists the existing ones, and \
                 any 127.x.y.z works")]
        NoSuchAddress { address: IpAddr } = EADDRNOTAVAIL,
        /// The system forbids the port, although UDP port 4791 needs no privilege.
        #[error("not permitted to use UDP port {ROCE_PORT} of {address}: a seccomp filter, a \
                 security module or net.ipv4.ip_unprivileged_port_start above {ROCE_PORT} forbids \
                 it")]
        NotPermitted { address: IpAddr } = EACCES,
        #[error("{address} cannot be a source address; give one of this machine's own, such as \
                 127.0.0.1")]
        NotUnicast { address: IpAddr } = EINVAL,
        #[error("{address} is link-local: name the interface, as in {address}%eth0")]
        ScopeMissing { address: IpAddr } = EINVAL,
        #[error("there is no interface with index {scope_id} for {address}; `ip link` lists the \
                 existing ones")]
        NoSuchScope { address: IpAddr, scope_id: u32 } = EADDRNOTAVAIL,
        #[error(
            "this system has no {}; use an address of the other family",
            if address.is_ipv6() { "IPv6" } else { "IPv4" }
        )]
        FamilyMissing { address: IpAddr } = EAFNOSUPPORT,
        #[error("{call} failed for UDP port {ROCE_PORT} of {address}: {errno}")]
        System { address: IpAddr, call: &'static str, errno: OsError } = errno.raw_os_error(),
    }
}

impl UdpPort {
    /// Opens the port.
    ///
    /// # Errors
    /// [`OpenPortError`], with a message that says what to do.
    pub fn open(config: UdpConfig) -> Result<Self, OpenPortError> {
        let (address, scope_id) = check_address(config.address.to_canonical(), config.scope_id)?;
        let socket = socket_closed_on_fork(address)?;
        configure(&socket, address, &config)?;
        bind(&socket, address, scope_id, config.interface, ROCE_PORT)?;
        assemble(socket, (address, scope_id), &config)
    }

    /// Makes the port of a socket on the address of `config` that [`bind_shared`] made, in this or
    /// another process.
    pub(crate) fn adopt(
        socket: CloseOnFork<Socket>,
        config: &UdpConfig,
    ) -> Result<Self, OpenPortError> {
        let address = config.address.to_canonical();
        configure(&socket, address, config)?;
        assemble(socket, check_address(address, config.scope_id)?, config)
    }

    /// Opens a port that receives packets to a multicast group from the interface of `config`. The
    /// port sends nothing.
    ///
    /// Its socket is bound to the group, because a socket bound to a host's address receives no
    /// packets to groups. Sockets of all processes and users share the group; each gets every
    /// packet.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn join(group: IpAddr, config: &UdpConfig) -> Result<Self, JoinError> {
        let because = |error| match error {
            OpenPortError::AddressInUse { .. } => JoinError::AddressInUse { group },
            OpenPortError::FamilyMissing { .. } => JoinError::NoAddress { group },
            OpenPortError::System { call, errno, .. } => JoinError::System { group, call, errno },
            other => JoinError::System { group, call: "bind", errno: OsError::new(other.errno()) },
        };
        let system_io =
            |call| move |error| JoinError::System { group, call, errno: OsError::of(error) };
        let socket = socket_closed_on_fork(group).map_err(because)?;
        // With SO_REUSEPORT, all sockets would have to belong to one user.
        socket.set_reuse_address(true).map_err(system_io("SO_REUSEADDR"))?;
        // The socket never sends, so each ICMP error for it is forged. A queued error would make
        // the socket readable for ever, because no thread takes the errors of group sockets.
        let config = &UdpConfig { icmp_errors: false, ..config.clone() };
        configure(&socket, config.address.to_canonical(), config).map_err(because)?;
        let scope_id = match group {
            IpAddr::V6(v6) if needs_scope(v6) => config.interface,
            _ => 0,
        };
        // Only packets from the interface of the address, even if another socket joined the group
        // on another interface.
        match group {
            IpAddr::V4(_) => {
                socket.set_multicast_all_v4(false).map_err(system_io("IP_MULTICAST_ALL"))?
            }
            IpAddr::V6(_) => {
                socket.set_multicast_all_v6(false).map_err(system_io("IPV6_MULTICAST_ALL"))?
            }
        }
        try_bind(&socket, group, scope_id, ROCE_PORT).map_err(|errno| match errno {
            Errno::ADDRINUSE => JoinError::AddressInUse { group },
            errno => JoinError::System { group, call: "bind", errno: OsError::of(errno) },
        })?;
        match (group, config.address.to_canonical()) {
            (IpAddr::V4(group), IpAddr::V4(own)) => {
                socket.join_multicast_v4(&group, &own).map_err(system_io("IP_ADD_MEMBERSHIP"))?;
            }
            (IpAddr::V6(group), IpAddr::V6(_)) => {
                socket
                    .join_multicast_v6(&group, config.interface)
                    .map_err(system_io("IPV6_ADD_MEMBERSHIP"))?;
            }
            _ => return Err(JoinError::NoAddress { group }),
        }
        assemble(socket, (group, scope_id), config).map_err(because)
    }

    /// Leaves the group that [`join`](Self::join) joined from the address `own`: no further packets
    /// arrive.
    pub fn leave(&self, own: IpAddr) {
        let left = match (self.address, own.to_canonical()) {
            (IpAddr::V4(group), IpAddr::V4(own)) => self.socket.leave_multicast_v4(&group, &own),
            (IpAddr::V6(group), _) => self.socket.leave_multicast_v6(&group, self.interface),
            _ => Ok(()),
        };
        if let Err(error) = left {
            // The membership ended with the address or the interface.
            tracing::debug!(group = %self.address, %error, "cannot leave a group");
        }
    }
}

/// Opens a socket that is alone on its address and port. [`set_shared`] lets others in.
pub(crate) fn bind_alone(config: &UdpConfig) -> Result<CloseOnFork<Socket>, OpenPortError> {
    let (address, scope_id) = check_address(config.address.to_canonical(), config.scope_id)?;
    let socket = socket_closed_on_fork(address)?;
    configure(&socket, address, config)?;
    bind(&socket, address, scope_id, config.interface, ROCE_PORT)?;
    Ok(socket)
}

/// Allows other sockets of this user on the address and port of a bound socket (SO_REUSEPORT).
pub(crate) fn set_shared(socket: &Socket, address: IpAddr) -> Result<(), OpenPortError> {
    socket.set_reuse_port(true).map_err(failed(address, "SO_REUSEPORT"))
}

/// Opens a socket that shares its address and port with others (SO_REUSEPORT).
pub(crate) fn bind_shared(config: &UdpConfig) -> Result<CloseOnFork<Socket>, OpenPortError> {
    let (address, scope_id) = check_address(config.address.to_canonical(), config.scope_id)?;
    let socket = socket_closed_on_fork(address)?;
    socket.set_reuse_port(true).map_err(failed(address, "SO_REUSEPORT"))?;
    configure(&socket, address, config)?;
    bind(&socket, address, scope_id, config.interface, ROCE_PORT)?;
    Ok(socket)
}

/// Opens a socket to send from, on a port that the system chooses. The socket receives only errors.
pub(super) fn bind_sender(port: &UdpPort) -> Result<(CloseOnFork<Socket>, u16), OpenPortError> {
    let address = port.address;
    let socket = socket_closed_on_fork(address)?;
    // Only the error queue uses the buffer.
    let config = UdpConfig {
        gro: false,
        receive_buffer: Some(256 << 10),
        interface: port.interface,
        icmp_mtu: !port.ignores_icmp_mtu,
        icmp_errors: port.takes_icmp_errors,
        ..UdpConfig::new(address)
    };
    configure(&socket, address, &config)?;
    bind(&socket, address, port.scope_id, port.interface, 0)?;
    socket::refuse_all_datagrams(&*socket).map_err(failed(address, "SO_ATTACH_FILTER"))?;
    let local = socket.local_addr().map_err(failed(address, "getsockname"))?;
    let number = local.as_socket().map_or(0, |address| address.port());
    Ok((socket, number))
}

fn socket_closed_on_fork(address: IpAddr) -> Result<CloseOnFork<Socket>, OpenPortError> {
    close_on_fork(|| new_socket(address)).map_err(|errno| match errno {
        Errno::AFNOSUPPORT => OpenPortError::FamilyMissing { address },
        Errno::ACCESS | Errno::PERM => OpenPortError::NotPermitted { address },
        errno => failed(address, "socket")(errno),
    })
}

/// The traffic class of packets of reliable connections, unless the program sets another:
/// ECN-capable (ECT(0), RFC 3168).
pub(super) const USUAL_TRAFFIC_CLASS: u8 = ecn::capable(0);

/// The options of every socket on an IPv4 address.
const V4_OPTIONS: [(IntOption, i32); 3] = [
    (socket::IP_RECVTTL, 1),
    (socket::IP_RECVTOS, 1),
    (socket::IP_TOS, USUAL_TRAFFIC_CLASS as i32),
];

/// The options of every socket on an IPv6 address.
const V6_OPTIONS: [(IntOption, i32); 5] = [
    (socket::IPV6_DONTFRAG, 1),
    (socket::IPV6_RECVHOPLIMIT, 1),
    (socket::IPV6_RECVTCLASS, 1),
    (socket::IPV6_TCLASS, USUAL_TRAFFIC_CLASS as i32),
    // The kernel's rxe may send IPv6 with checksum 0; the ICRC protects the packet.
    (socket::UDP_NO_CHECK6_RX, 1),
];

/// Returns the option that queues ICMP errors of sent packets.
const fn error_queue(address: IpAddr) -> IntOption {
    match address {
        IpAddr::V4(_) => socket::IP_RECVERR,
        IpAddr::V6(_) => socket::IPV6_RECVERR,
    }
}

/// Returns the option of path MTU discovery, with the modes that believe and that ignore ICMP
/// messages. Both forbid fragments.
///
/// The modes that ignore ICMP messages allow packets up to the MTU of the interface. They exist
/// since Linux 2.6.22; some sandboxes lack them.
const fn mtu_discovery(address: IpAddr) -> (IntOption, [i32; 2]) {
    match address {
        IpAddr::V4(_) => (socket::IP_MTU_DISCOVER, [libc::IP_PMTUDISC_DO, libc::IP_PMTUDISC_PROBE]),
        IpAddr::V6(_) => {
            (socket::IPV6_MTU_DISCOVER, [libc::IPV6_PMTUDISC_DO, libc::IPV6_PMTUDISC_PROBE])
        }
    }
}

/// Sets an option to the first of `values` that the system supports. Returns the error for the last
/// value if it supports none.
fn set_first(socket: &Socket, option: IntOption, values: &[i32]) -> Result<(), Errno> {
    let mut set = Err(Errno::INVAL);
    for &value in values {
        set = socket::set_int(socket, option, value);
        if set.is_ok() {
            break;
        }
    }
    set
}

fn configure(socket: &Socket, address: IpAddr, config: &UdpConfig) -> Result<(), OpenPortError> {
    let options = if address.is_ipv4() { &V4_OPTIONS[..] } else { &V6_OPTIONS };
    for &(option, value) in options {
        socket::set_int(socket, option, value).map_err(failed(address, option.name))?;
    }
    // A system without the option drops these errors. Then only timeouts report them.
    let option = error_queue(address);
    if let Err(errno) = socket::set_int(socket, option, config.icmp_errors.into()) {
        tracing::debug!(%address, error = %errno, "no ICMP errors: {} failed", option.name);
    }
    let (option, [believe, ignore]) = mtu_discovery(address);
    let modes = if config.icmp_mtu { &[believe][..] } else { &[ignore, believe] };
    set_first(socket, option, modes).map_err(failed(address, option.name))?;
    match address {
        IpAddr::V4(_) => {
            if let IpAddr::V4(own) = config.address.to_canonical() {
                // Fails if the address is not this machine's, which bind() reports better.
                let _ = socket.set_multicast_if_v4(&own);
            }
        }
        IpAddr::V6(_) => {
            // Once the socket is bound (in another process), the kernel refuses the change.
            if !socket.only_v6().map_err(failed(address, "IPV6_V6ONLY"))? {
                socket.set_only_v6(true).map_err(failed(address, "IPV6_V6ONLY"))?;
            }
            if config.interface != 0 {
                socket
                    .set_multicast_if_v6(config.interface)
                    .map_err(failed(address, "IPV6_MULTICAST_IF"))?;
            }
        }
    }
    // The kernel may grant less without an error; the granted value is read back.
    socket
        .set_recv_buffer_size(
            config.receive_buffer.unwrap_or(RECEIVE_BUFFER).min(i32::MAX as usize),
        )
        .map_err(failed(address, "SO_RCVBUF"))?;
    socket
        .set_send_buffer_size(config.send_buffer.unwrap_or(SEND_BUFFER).min(i32::MAX as usize))
        .map_err(failed(address, "SO_SNDBUF"))?;
    Ok(())
}

fn assemble(
    socket: CloseOnFork<Socket>,
    (address, scope_id): (IpAddr, u32),
    config: &UdpConfig,
) -> Result<UdpPort, OpenPortError> {
    let receive_buffer = socket.recv_buffer_size().map_err(failed(address, "SO_RCVBUF"))?;
    let send_buffer = socket.send_buffer_size().map_err(failed(address, "SO_SNDBUF"))?;
    // Kernels from 4.18 (GSO) and 5.0 (GRO) know these options.
    let gso = config.gso && socket::int(&*socket, socket::UDP_SEGMENT).is_ok();
    let gro =
        socket::set_int(&*socket, socket::UDP_GRO, i32::from(config.gro)).is_ok() && config.gro;
    let (option, [_, ignore]) = mtu_discovery(address);
    let ignores_icmp_mtu = socket::int(&*socket, option) == Ok(ignore);
    let takes_icmp_errors = socket::int(&*socket, error_queue(address)) == Ok(1);
    tracing::debug!(
        %address, scope_id, receive_buffer, send_buffer, gso, gro, ignores_icmp_mtu,
        takes_icmp_errors,
        "opened UDP port {ROCE_PORT}"
    );
    Ok(UdpPort {
        socket,
        senders: Senders::default(),
        address,
        scope_id,
        interface: config.interface,
        receive_buffer,
        send_buffer,
        gso: AtomicBool::new(gso),
        gro,
        ignores_icmp_mtu,
        takes_icmp_errors,
        errors_pending: AtomicBool::new(false),
        is_address_missing: AtomicBool::new(false),
        counters: Counters::default(),
        log_limit: LogLimit::default(),
        tap: config.tap.clone(),
    })
}

/// Refuses addresses that cannot be a source address. Returns the address with the scope to use.
pub(crate) fn check_address(
    address: IpAddr,
    scope_id: u32,
) -> Result<(IpAddr, u32), OpenPortError> {
    match address {
        _ if !gid::is_unicast(address) => Err(OpenPortError::NotUnicast { address }),
        IpAddr::V6(v6) if needs_scope(v6) && scope_id == 0 => {
            Err(OpenPortError::ScopeMissing { address })
        }
        IpAddr::V6(v6) if needs_scope(v6) => Ok((address, scope_id)),
        _ => Ok((address, 0)),
    }
}

fn new_socket(address: IpAddr) -> Result<Socket, Errno> {
    socket::udp_for(SocketAddr::new(address, ROCE_PORT), SocketFlags::NONBLOCK)
}

/// Binds the socket. `interface` has the address; 0 if that is not known.
fn bind(
    socket: &Socket,
    address: IpAddr,
    scope_id: u32,
    interface: u32,
    port: u16,
) -> Result<(), OpenPortError> {
    let bound = match try_bind(socket, address, scope_id, port) {
        Err(Errno::ADDRNOTAVAIL) if interface != 0 && address.is_ipv6() => {
            bind_tentative(socket, address, scope_id, port)
        }
        bound => bound,
    };
    match bound {
        Ok(()) => Ok(()),
        Err(Errno::ADDRINUSE) => Err(OpenPortError::AddressInUse {
            address,
            owner: None,
            free: free_loopback_address().map(IpAddr::V4),
        }),
        Err(Errno::ADDRNOTAVAIL) => Err(OpenPortError::NoSuchAddress { address }),
        Err(Errno::ACCESS | Errno::PERM) => Err(OpenPortError::NotPermitted { address }),
        Err(Errno::NODEV) => Err(OpenPortError::NoSuchScope { address, scope_id }),
        // For a broadcast address of an interface, bind(2) fails with different errors.
        Err(errno) => Err(failed(address, "bind")(errno)),
    }
}

/// Binds the socket to an address that is tentative: the system still looks for duplicates of it
/// (RFC 4862, 5.4). That takes one or two seconds after the interface comes up.
fn bind_tentative(socket: &Socket, address: IpAddr, scope_id: u32, port: u16) -> Result<(), Errno> {
    let allow = |any| socket.set_freebind_v6(any).map_err(|error| errno_of(&error));
    allow(true)?;
    let bound = try_bind(socket, address, scope_id, port);
    allow(false)?;
    bound
}

fn try_bind(socket: impl AsFd, address: IpAddr, scope_id: u32, port: u16) -> Result<(), Errno> {
    let to = match address {
        IpAddr::V4(_) => SocketAddr::new(address, port),
        IpAddr::V6(v6) => SocketAddr::V6(SocketAddrV6::new(v6, port, 0, scope_id)),
    };
    socket2::SockRef::from(&socket).bind(&SockAddr::from(to)).map_err(|error| errno_of(&error))
}

/// Returns the first loopback address, from 127.0.0.2 on, whose port 4791 is free at this moment.
#[must_use]
pub fn free_loopback_address() -> Option<Ipv4Addr> {
    (2..=65).map(|last| Ipv4Addr::new(127, 0, 0, last)).find(|&candidate| {
        new_socket(IpAddr::V4(candidate))
            .and_then(|socket| try_bind(socket, IpAddr::V4(candidate), 0, ROCE_PORT))
            .is_ok()
    })
}

/// Returns the function that makes the error of `call`, which failed for a socket on `address`.
pub(crate) fn failed<E: Into<io::Error>>(
    address: IpAddr,
    call: &'static str,
) -> impl FnOnce(E) -> OpenPortError {
    move |error| OpenPortError::System { address, call, errno: OsError::of(error) }
}

fn errno_of(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    #[test]
    fn a_system_without_a_mode_gets_the_next_one() {
        for address in [IpAddr::V4(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            let Ok(socket) = new_socket(address) else {
                eprintln!("skipped: this system has no IPv6");
                continue;
            };
            let (option, [believe, ignore]) = mtu_discovery(address);
            // No system has this mode.
            const UNKNOWN: i32 = 99;
            assert_eq!(set_first(&socket, option, &[ignore, believe]), Ok(()));
            assert_eq!(socket::int(&socket, option), Ok(ignore));
            assert_eq!(set_first(&socket, option, &[UNKNOWN, believe]), Ok(()));
            assert_eq!(socket::int(&socket, option), Ok(believe));
            assert_eq!(set_first(&socket, option, &[UNKNOWN]), Err(Errno::INVAL));
        }
    }
}
