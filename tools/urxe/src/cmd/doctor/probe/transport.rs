//! Probes of the user, the port, GSO and GRO, ICMP errors, IPv6, threads, send queues, and
//! interface events.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::thread;
use std::time::Instant;

use urxe_stack::link::Changes;
use urxe_stack::port::SendOutcome;
use urxe_stack::port::udp::{OpenPortError, PathErrorReason, UdpConfig, UdpPort};
use urxe_stack::sys::affinity;
use urxe_stack::sys::environment::value;
use urxe_wire::ROCE_PORT;

use super::{
    Arrival, Name, Probe, arrivals, marked, not_tried, scratch_port, send, send_from_port,
    wait_readable,
};

/// Returns the effective user and the kernel. Informs; there is nothing to fail.
pub(super) fn user() -> Probe {
    let uid = rustix::process::geteuid();
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let detail = format!("effective user id {}, Linux {}", uid.as_raw(), release.trim());
    let consequence = if uid.is_root() { "root is not needed" } else { "no privilege is needed" };
    Name("user").works(detail, consequence)
}

/// Probes UDP port 4791 on a free address, and on 127.0.0.1, which the built-in device uses.
pub(super) fn port() -> Probe {
    const NAME: Name = Name("UDP port 4791");
    const NOTHING_ELSE: &str = "RDMA over UDP does not work here, and no other probe can run";
    let (a, b) = match (scratch_port(), scratch_port()) {
        (Ok(a), Ok(b)) => (a, b),
        (Err(error), _) | (_, Err(error)) => {
            let probe = NAME.fails(
                error.to_string(),
                "RDMA over UDP does not work here, and no other probe can run",
            );
            return match error {
                OpenPortError::AddressInUse { .. } => probe.advise(
                    "find the process with `ss -ulnp sport = :4791`; if there is none, the \
                     kernel's rdma_rxe uses the port: `rdma link` lists its devices, and `rdma \
                     link delete NAME` removes one; or use another network namespace",
                ),
                _ => probe,
            };
        }
    };
    let packet = marked(64, 1);
    let sent = send(&a, b.address(), &packet, packet.len());
    let arrived = arrivals(&b, 1);
    if sent != SendOutcome::Sent || !arrived.iter().any(|arrival| arrival.bytes == packet) {
        let (why, advice) = if a.counters().send_unreachable > 0 {
            ("cannot be sent", "enable the loopback interface: `ip link set lo up`")
        } else {
            let filter = "check the packet filter of the loopback interface: `nft list ruleset`, \
                          `iptables -L`";
            ("does not arrive", filter)
        };
        let (from, to) = (a.address(), b.address());
        let detail = format!("the port opens, but a packet from {from} to {to} {why}");
        return NAME.fails(detail, NOTHING_ELSE).advise(advice);
    }
    match UdpPort::open(UdpConfig::new(IpAddr::V4(Ipv4Addr::LOCALHOST))) {
        Ok(_) => NAME.works(
            "free on 127.0.0.1 and on other loopback addresses; packets arrive",
            "RDMA over UDP works",
        ),
        Err(error) => NAME
            .limited(error.to_string(), "devices need another address")
            .advise("choose an address, such as URXE_DEVICES=rxe0=127.0.0.2"),
    }
}

/// The packets of a run that the gso and gro probes send.
const RUN_PACKETS: usize = 4;
const RUN_SEGMENT: usize = 1040;

/// Sends a run in one call and returns the arrivals.
fn send_run(a: &UdpPort, b: &UdpPort) -> (SendOutcome, Vec<u8>, Vec<Arrival>) {
    let bytes = marked((RUN_PACKETS - 1) * RUN_SEGMENT + 16, 2);
    let sent = send(a, b.address(), &bytes, RUN_SEGMENT);
    let arrived = if sent == SendOutcome::Sent { arrivals(b, RUN_PACKETS) } else { Vec::new() };
    (sent, bytes, arrived)
}

pub(super) const GSO: Name = Name("UDP GSO (many packets a send)");

/// Probes UDP GSO, which sends several packets with one system call.
pub(super) fn gso(name: Name, a: UdpPort, b: UdpPort) -> Probe {
    const WITHOUT: &str =
        "each packet needs a system call, so large messages are several times slower";
    const ADVICE: &str = "use Linux 4.18 or newer, outside a sandbox that emulates the network";
    if !a.gso() {
        return name.limited("the kernel does not support UDP_SEGMENT", WITHOUT).advise(ADVICE);
    }
    let (sent, bytes, arrived) = send_run(&a, &b);
    let whole: Vec<u8> = arrived.iter().flat_map(|arrival| arrival.bytes.clone()).collect();
    let packets: usize = arrived.iter().map(Arrival::packets).sum();
    if sent == SendOutcome::Sent && whole == bytes && packets == RUN_PACKETS {
        let detail = format!("{RUN_PACKETS} packets of {RUN_SEGMENT} bytes were sent in one call");
        name.works(detail, "large messages use up to 64 packets for each system call")
    } else {
        let detail = format!(
            "a run of {RUN_PACKETS} packets in one call: {}, {packets} packets arrived",
            if sent == SendOutcome::Sent { "sent" } else { "refused" }
        );
        name.limited(detail, WITHOUT).advise(ADVICE)
    }
}

pub(super) const GRO: Name = Name("UDP GRO (many packets a receive)");

/// Probes UDP GRO, which receives several packets with one system call.
pub(super) fn gro(name: Name, a: UdpPort, b: UdpPort) -> Probe {
    const WITHOUT: &str =
        "each system call receives up to 8 packets, which the kernel processes one by one";
    const ADVICE: &str = "use Linux 5.0 or newer, outside a sandbox that emulates the network";
    if !b.gro() {
        return name.limited("the kernel does not support UDP_GRO", WITHOUT).advise(ADVICE);
    }
    if !a.gso() {
        return name.unverified(
            "the socket accepts the option, but without GSO loopback merges no packets",
            "packets of peers may arrive merged",
        );
    }
    let (_, _, arrived) = send_run(&a, &b);
    match arrived.iter().max_by_key(|arrival| arrival.packets()) {
        Some(merged) if merged.packets() > 1 => {
            let detail = format!(
                "{} packets of {} bytes arrived merged",
                merged.packets(),
                merged.segment_size
            );
            name.works(detail, "each system call receives many packets of large messages")
        }
        Some(_) => name.limited("packets of one call arrived one by one", WITHOUT).advise(ADVICE),
        None => name.unverified("no packet arrived", "unknown until GSO works"),
    }
}

pub(super) const PATH_ERRORS: Name = Name("ICMP errors (IP_RECVERR)");
/// The consequence of missing ICMP errors.
const SILENT: &str = "only exceeded retries show that a peer does not listen";

/// Probes the error queue, which holds ICMP errors for packets sent.
pub(super) fn path_errors(name: Name, a: UdpPort, b: UdpPort) -> Probe {
    if !a.takes_icmp_errors() {
        return name
            .limited("the system does not support the option", SILENT)
            .advise("use Linux outside a sandbox that emulates the network");
    }
    let closed = b.address();
    drop(b);
    let packet = marked(64, 3);
    send(&a, closed, &packet, packet.len());
    let deadline = Instant::now() + super::ARRIVAL_TIMEOUT;
    let mut found = None;
    loop {
        a.drain_errors(|error| {
            if error.peer == closed {
                found = Some(error);
            }
        });
        if found.is_some() || !wait_readable(&a, deadline) {
            break;
        }
    }
    match found {
        Some(error) if error.reason == PathErrorReason::PortUnreachable => name.works(
            format!("a packet to a closed port: \"{error}\""),
            "the log, the counters and errors of connections name the reason why a peer does not \
             answer",
        ),
        Some(error) => name.limited(
            format!("a packet to a closed port: \"{error}\""),
            "the log may report wrong reasons for lost packets",
        ),
        None => name
            .limited("a packet to a closed port gave no error", SILENT)
            .advise("check whether the packet filter drops ICMP: `nft list ruleset`"),
    }
}

pub(super) const ICMP_MTU: Name = Name("Forged path MTUs (IP_PMTUDISC_PROBE)");

/// Probes whether sockets ignore the path MTU of ICMP messages.
pub(super) fn icmp_mtu(name: Name, a: UdpPort, _: UdpPort) -> Probe {
    if a.ignores_icmp_mtu() {
        return name.works(
            "sockets ignore the path MTU of ICMP messages",
            "a forged message cannot end connections",
        );
    }
    name.limited(
        "the system does not support IP_PMTUDISC_PROBE",
        "a host that forges ICMP messages can end connections for ten minutes",
    )
    .advise("use Linux outside a sandbox that emulates the network")
}

pub(super) const SOURCE_PORT: Name = Name("Forged packets (source ports)");
/// A process slot of a peer. Packets to it have a source port of their own.
const PEER_SLOT: u8 = 5;

/// Probes whether a receiver learns the source port of each packet.
pub(super) fn source_port(name: Name, a: UdpPort, b: UdpPort) -> Probe {
    let packet = marked(64, 6);
    let ports = [ROCE_PORT, a.port_towards(PEER_SLOT)];
    for port in ports {
        send_from_port(&a, port, b.address(), &packet, packet.len());
    }
    let mut arrived: Vec<_> = arrivals(&b, 2).iter().map(|arrival| arrival.from_port).collect();
    arrived.sort_unstable();
    let mut expected = ports;
    expected.sort_unstable();
    if ports[0] != ports[1] && arrived == expected {
        return name.works(
            "the source port of each packet is known",
            "a packet from another port than the peer's needs the expected PSN",
        );
    }
    name.limited(
        format!("packets were sent from the ports {expected:?}, and arrived from {arrived:?}"),
        "lost packets of a peer may be requested only after its timeout",
    )
    .advise("set URXE_PORT_CHECK=off if a peer's port changes with each packet")
}

/// Probes whether a background thread can run on the processors on which this process started.
pub(super) fn background_threads() -> Probe {
    const NAME: Name = Name("Background threads (affinity)");
    const WITHOUT: &str = "a background thread shares the processor of a pinned polling thread";
    let Some(count) = affinity::processors() else {
        return NAME.limited("the system does not tell the processors of a thread", WITHOUT);
    };
    match thread::spawn(affinity::restore).join() {
        Ok(Ok(())) => NAME.works(
            format!("the process may use {count} processors, and each of its threads as well"),
            "a background thread leaves a pinned polling thread its processor",
        ),
        Ok(Err(error)) => NAME
            .limited(format!("the system refuses sched_setaffinity: {error}"), WITHOUT)
            .advise("let the sandbox allow sched_setaffinity, or open devices before pinning"),
        Err(_) => NAME.unverified("the thread of the probe panicked", "unknown"),
    }
}

/// Returns whether background threads look for requests instead of sleeping.
pub(super) fn spinning() -> Probe {
    const NAME: Name = Name("READs of idle processes (URXE_SPIN)");
    const WITHOUT: &str = "a background thread sleeps and wakes up for each request";
    match (crate::traffic::variables::spin_share(), affinity::processors()) {
        (Err(error), _) => NAME.fails(error.to_string(), "C programs find no device"),
        (Ok(0), _) => NAME.works("URXE_SPIN=0", WITHOUT),
        (Ok(_), None | Some(0 | 1)) => {
            NAME.limited("the process may use one processor only", WITHOUT)
        }
        (Ok(share), Some(_)) => NAME.works(
            format!("at most {share} % of one processor looks for the next request"),
            "requests close to each other need no wake-up",
        ),
    }
}

/// Returns when the entries of send queues are free again. Informs; there is nothing to fail unless
/// the variable is wrong.
pub(super) fn send_queues() -> Probe {
    const NAME: Name = Name("send queues (URXE_STRICT)");
    match value("URXE_STRICT") {
        None => NAME.works(
            "an acknowledged request frees its entry, as in rdma_rxe",
            "URXE_STRICT=queues tests whether a C program signals and polls enough for a NIC",
        ),
        Some(given) if given == "queues" => NAME.works(
            "a polled completion frees its entry and all earlier ones, as on NICs",
            "C programs that signal or poll too rarely get ENOMEM",
        ),
        Some(given) => NAME
            .fails(format!("URXE_STRICT is {given:?}"), "C programs cannot open a device")
            .advise("unset URXE_STRICT, or set it to queues"),
    }
}

/// Probes IPv6 on ::1.
pub(super) fn ipv6() -> Probe {
    const NAME: Name = Name("IPv6");
    let local = IpAddr::V6(Ipv6Addr::LOCALHOST);
    let without = "devices can use only IPv4";
    let port = match UdpPort::open(UdpConfig::new(local)) {
        Ok(port) => port,
        // Another process uses the address, so IPv6 works.
        Err(OpenPortError::AddressInUse { .. }) => {
            let detail = format!("another process uses UDP port {ROCE_PORT} of ::1");
            return NAME.works(detail, "IPv6 addresses work; ::1 is in use");
        }
        Err(
            error @ (OpenPortError::NoSuchAddress { .. } | OpenPortError::FamilyMissing { .. }),
        ) => {
            let detail = match error {
                OpenPortError::NoSuchAddress { .. } => {
                    "no interface has the address ::1".to_owned()
                }
                error => error.to_string(),
            };
            return NAME.limited(detail, without).advise(
                "to use IPv6: sysctl net.ipv6.conf.all.disable_ipv6=0, and enable lo; a container \
                 may not have IPv6",
            );
        }
        Err(error) => return not_tried(NAME, &error),
    };
    let packet = marked(64, 4);
    send(&port, local, &packet, packet.len());
    if arrivals(&port, 1).iter().any(|arrival| arrival.bytes == packet && arrival.from == local) {
        NAME.works("a packet over ::1 arrives", "IPv6 addresses work")
    } else {
        NAME.limited("a packet over ::1 does not arrive", without).advise(
            "check the packet filter of the loopback interface: `nft list ruleset`, `ip6tables -L`",
        )
    }
}

/// Probes whether the kernel reports changes of interfaces and addresses.
pub(super) fn interface_changes() -> Probe {
    const NAME: Name = Name("interface changes");
    match Changes::watch() {
        Ok(_) => NAME.works(
            "netlink reports changes of interfaces and addresses",
            "open devices update their port and GID table, and report events",
        ),
        Err(error) => NAME
            .limited(
                format!("the system refuses netlink: {error}"),
                "open devices keep the port and GID table of their opening, and report no event",
            )
            .advise(
                "allow sockets of family AF_NETLINK (seccomp filter, RestrictAddressFamilies= of \
             systemd)",
            ),
    }
}
