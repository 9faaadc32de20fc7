//! Opening a UDP port: what can be asked for, and what can go wrong.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use urxe_wire::ROCE_PORT;

use super::{Counters, LogLimit, UdpPort, needs_scope};
use crate::port::tap::Tap;
use crate::sync::Arc;
use crate::sync::atomic::AtomicBool;
use crate::sys::option;

/// Bytes of receive buffer asked for unless configured. A port that is granted half of it holds 992 packets of 4 KiB
/// (measured). The kernel grants at most net.core.rmem_max.
const RECEIVE_BUFFER: usize = 8 << 20;
/// Bytes of send buffer asked for unless configured. The kernel grants at most net.core.wmem_max.
const SEND_BUFFER: usize = 4 << 20;

/// How to open a [`UdpPort`].
#[derive(Clone, Debug)]
pub struct UdpConfig {
    /// The address to bind to: one of this machine's, not a wildcard and not a group.
    pub address: IpAddr,
    /// The interface index that a link-local IPv6 address (fe80::) belongs to; else 0.
    pub scope_id: u32,
    /// Bytes of receive buffer to ask for; 8 MiB if `None`. The kernel grants at most net.core.rmem_max.
    pub receive_buffer: Option<usize>,
    /// Bytes of send buffer to ask for; 4 MiB if `None`. The kernel grants at most net.core.wmem_max.
    pub send_buffer: Option<usize>,
    /// Send runs of several packets in one call where the kernel can.
    pub gso: bool,
    /// Receive merged datagrams where the kernel can.
    pub gro: bool,
    /// Records what passes.
    pub tap: Option<Arc<Tap>>,
}

impl UdpConfig {
    /// A port on `address` with everything the system grants.
    #[must_use]
    pub fn new(address: IpAddr) -> Self {
        Self {
            address,
            scope_id: 0,
            receive_buffer: None,
            send_buffer: None,
            gso: true,
            gro: true,
            tap: None,
        }
    }
}

/// Why a port could not be opened, and what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenPortError {
    /// Somebody has the address and port.
    #[error(
        "UDP port {ROCE_PORT} of {address} is taken by another process or by the kernel's rdma_rxe{}",
        match free {
            Some(free) => format!("; {free} is free"),
            None => "; no loopback address has it free, as when a process or rdma_rxe holds it on every address \
                     of this network namespace".to_owned(),
        }
    )]
    AddressInUse {
        /// The address asked for.
        address: IpAddr,
        /// A loopback address on which the port was free at that moment.
        free: Option<IpAddr>,
    },
    /// No interface of this network namespace has the address.
    #[error(
        "no interface has the address {address}; `ip address` lists those there are, and any 127.x.y.z works"
    )]
    NoSuchAddress {
        /// The address asked for.
        address: IpAddr,
    },
    /// The system forbids it, although UDP port 4791 needs no privilege as such.
    #[error(
        "not permitted to use UDP port {ROCE_PORT} of {address}: a seccomp filter, a security module or \
         net.ipv4.ip_unprivileged_port_start above {ROCE_PORT} forbids it"
    )]
    NotPermitted {
        /// The address asked for.
        address: IpAddr,
    },
    /// The address names no single interface of this machine.
    #[error(
        "{address} is not an address that packets can come from; give one of this machine's own, such as 127.0.0.1"
    )]
    NotUnicast {
        /// The address asked for.
        address: IpAddr,
    },
    /// A link-local address was given without its interface.
    #[error("{address} is link-local: say on which interface, as in {address}%eth0")]
    ScopeMissing {
        /// The address asked for.
        address: IpAddr,
    },
    /// The interface of a link-local address is not there.
    #[error(
        "there is no interface with index {scope_id}, which {address} is to belong to; `ip link` lists them"
    )]
    NoSuchScope {
        /// The address asked for.
        address: IpAddr,
        /// The interface index asked for.
        scope_id: u32,
    },
    /// The kernel has no sockets of the address's family.
    #[error("this system has no {}; use an address of the other family", if address.is_ipv6() { "IPv6" } else { "IPv4" })]
    FamilyMissing {
        /// The address asked for.
        address: IpAddr,
    },
    /// Anything else.
    #[error("{call} failed for UDP port {ROCE_PORT} of {address}: {errno}")]
    System {
        /// The address asked for.
        address: IpAddr,
        /// The system call or socket option.
        call: &'static str,
        /// What it answered.
        errno: Errno,
    },
}

impl OpenPortError {
    /// The errno nearest to it.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        match self {
            Self::AddressInUse { .. } => libc::EADDRINUSE,
            Self::NoSuchAddress { .. } | Self::NoSuchScope { .. } => libc::EADDRNOTAVAIL,
            Self::NotPermitted { .. } => libc::EACCES,
            Self::NotUnicast { .. } | Self::ScopeMissing { .. } => libc::EINVAL,
            Self::FamilyMissing { .. } => libc::EAFNOSUPPORT,
            Self::System { errno, .. } => errno.raw_os_error(),
        }
    }
}

/// Opens and configures the socket.
pub(super) fn open(config: UdpConfig) -> Result<UdpPort, OpenPortError> {
    let address = config.address.to_canonical();
    let scope_id = check_address(address, config.scope_id)?;
    let system = |call| move |errno| OpenPortError::System { address, call, errno };
    let system_io = |call| move |error| OpenPortError::System { address, call, errno: errno_of(&error) };

    let socket = new_socket(address).map_err(|errno| match errno {
        Errno::AFNOSUPPORT => OpenPortError::FamilyMissing { address },
        Errno::ACCESS | Errno::PERM => OpenPortError::NotPermitted { address },
        errno => OpenPortError::System { address, call: "socket", errno },
    })?;

    match address {
        IpAddr::V4(_) => {
            set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::DO).map_err(system("IP_MTU_DISCOVER"))?;
            option::set_int(&socket, option::IP_PKTINFO, 1).map_err(system("IP_PKTINFO"))?;
            option::set_int(&socket, option::IP_RECVERR, 1).map_err(system("IP_RECVERR"))?;
            option::set_int(&socket, option::IP_RECVTTL, 1).map_err(system("IP_RECVTTL"))?;
            socket.set_recv_tos_v4(true).map_err(system_io("IP_RECVTOS"))?;
        }
        IpAddr::V6(_) => {
            socket.set_only_v6(true).map_err(system_io("IPV6_V6ONLY"))?;
            set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::DO).map_err(system("IPV6_MTU_DISCOVER"))?;
            option::set_int(&socket, option::IPV6_DONTFRAG, 1).map_err(system("IPV6_DONTFRAG"))?;
            option::set_int(&socket, option::IPV6_RECVPKTINFO, 1).map_err(system("IPV6_RECVPKTINFO"))?;
            option::set_int(&socket, option::IPV6_RECVERR, 1).map_err(system("IPV6_RECVERR"))?;
            socket.set_recv_hoplimit_v6(true).map_err(system_io("IPV6_RECVHOPLIMIT"))?;
            socket.set_recv_tclass_v6(true).map_err(system_io("IPV6_RECVTCLASS"))?;
            // The kernel's rxe may send IPv6 with checksum 0; the ICRC protects the packet.
            option::set_int(&socket, option::UDP_NO_CHECK6_RX, 1).map_err(system("UDP_NO_CHECK6_RX"))?;
        }
    }

    // The kernel grants what it likes without an error; what it granted is read back.
    socket
        .set_recv_buffer_size(config.receive_buffer.unwrap_or(RECEIVE_BUFFER).min(i32::MAX as usize))
        .map_err(system_io("SO_RCVBUF"))?;
    socket
        .set_send_buffer_size(config.send_buffer.unwrap_or(SEND_BUFFER).min(i32::MAX as usize))
        .map_err(system_io("SO_SNDBUF"))?;
    let receive_buffer = socket.recv_buffer_size().map_err(system_io("SO_RCVBUF"))?;
    let send_buffer = socket.send_buffer_size().map_err(system_io("SO_SNDBUF"))?;

    // Kernels from 4.18 (GSO) and 5.0 (GRO) know these; elsewhere the port does without.
    let gso = config.gso && option::int(&socket, option::UDP_SEGMENT).is_ok();
    let gro = config.gro && option::set_int(&socket, option::UDP_GRO, 1).is_ok();

    bind(&socket, address, scope_id)?;
    tracing::debug!(%address, scope_id, receive_buffer, send_buffer, gso, gro, "opened UDP port {ROCE_PORT}");
    Ok(UdpPort {
        socket,
        address,
        scope_id,
        receive_buffer,
        send_buffer,
        gso: AtomicBool::new(gso),
        gro,
        errors_pending: AtomicBool::new(false),
        counters: Counters::default(),
        log_limit: LogLimit::default(),
        tap: config.tap,
    })
}

/// Refuses addresses that no packet can come from; returns the scope to use.
fn check_address(address: IpAddr, scope_id: u32) -> Result<u32, OpenPortError> {
    let unicast = match address {
        IpAddr::V4(v4) => !(v4.is_unspecified() || v4.is_multicast() || v4.is_broadcast()),
        IpAddr::V6(v6) => !(v6.is_unspecified() || v6.is_multicast()),
    };
    match address {
        _ if !unicast => Err(OpenPortError::NotUnicast { address }),
        IpAddr::V6(v6) if needs_scope(v6) && scope_id == 0 => Err(OpenPortError::ScopeMissing { address }),
        IpAddr::V6(v6) if needs_scope(v6) => Ok(scope_id),
        _ => Ok(0),
    }
}

fn new_socket(address: IpAddr) -> Result<Socket, Errno> {
    // socket2 makes it close-on-exec.
    let domain = Domain::for_address(SocketAddr::new(address, ROCE_PORT));
    Socket::new(domain, Type::DGRAM.nonblocking(), Some(Protocol::UDP)).map_err(|error| errno_of(&error))
}

fn bind(socket: &Socket, address: IpAddr, scope_id: u32) -> Result<(), OpenPortError> {
    let system = |call, errno| OpenPortError::System { address, call, errno };
    match try_bind(socket, address, scope_id) {
        Ok(()) => Ok(()),
        Err(Errno::ADDRINUSE) => {
            Err(OpenPortError::AddressInUse { address, free: free_loopback_address().map(IpAddr::V4) })
        }
        Err(Errno::ADDRNOTAVAIL) => Err(OpenPortError::NoSuchAddress { address }),
        Err(Errno::ACCESS | Errno::PERM) => Err(OpenPortError::NotPermitted { address }),
        Err(Errno::NODEV) => Err(OpenPortError::NoSuchScope { address, scope_id }),
        // What bind(2) answers for a broadcast address of an interface varies; the reason is told as it comes.
        Err(errno) => Err(system("bind", errno)),
    }
}

fn try_bind(socket: impl AsFd, address: IpAddr, scope_id: u32) -> Result<(), Errno> {
    let to = match address {
        IpAddr::V4(_) => SocketAddr::new(address, ROCE_PORT),
        IpAddr::V6(v6) => SocketAddr::V6(SocketAddrV6::new(v6, ROCE_PORT, 0, scope_id)),
    };
    socket2::SockRef::from(&socket).bind(&SockAddr::from(to)).map_err(|error| errno_of(&error))
}

/// The first loopback address, from 127.0.0.2 on, whose port 4791 nobody has at this moment.
#[must_use]
pub fn free_loopback_address() -> Option<Ipv4Addr> {
    (2..=65).map(|last| Ipv4Addr::new(127, 0, 0, last)).find(|&candidate| {
        new_socket(IpAddr::V4(candidate))
            .and_then(|socket| try_bind(socket, IpAddr::V4(candidate), 0))
            .is_ok()
    })
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
