//! Probes of this machine, on loopback.
//!
//! Each [`Probe`] holds its name, outcome, observation, consequence for RDMA, and advice. All
//! sockets are on loopback addresses, so no packet leaves the machine. A run takes about 20 ms, or
//! a few seconds where packets do not arrive.

mod buffers;
mod identification;
pub mod processes;
mod programs;
mod sharing;
mod transport;

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use urxe_stack::port::udp::{OpenPortError, ReceiveBuffers, UdpConfig, UdpPort};
use urxe_stack::port::{Run, SendOutcome, Transmit};
use urxe_wire::ROCE_PORT;

/// The outcome of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Full function.
    Works,
    /// Usable, but slower or with a missing part.
    Limited,
    /// Not usable.
    Fails,
    /// The probe could not run here.
    Unverified,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Works => "works",
            Self::Limited => "limited",
            Self::Fails => "fails",
            Self::Unverified => "unverified",
        })
    }
}

/// The result of a probe. All texts are for people, without a final full stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// The name, which stays the same between versions.
    pub name: &'static str,
    /// The outcome.
    pub outcome: Outcome,
    /// The observation.
    pub detail: String,
    /// The consequence for RDMA.
    pub consequence: Cow<'static, str>,
    /// The change that improves the outcome, if there is one.
    pub advice: Option<Cow<'static, str>>,
}

/// The name of a probe, which builds its results.
#[derive(Clone, Copy, Debug)]
struct Name(&'static str);

impl Name {
    fn went(
        self,
        outcome: Outcome,
        detail: impl Into<String>,
        consequence: impl Into<Cow<'static, str>>,
    ) -> Probe {
        let (detail, consequence) = (detail.into(), consequence.into());
        Probe { name: self.0, outcome, detail, consequence, advice: None }
    }

    fn works(self, detail: impl Into<String>, follows: impl Into<Cow<'static, str>>) -> Probe {
        self.went(Outcome::Works, detail, follows)
    }

    fn limited(self, detail: impl Into<String>, follows: impl Into<Cow<'static, str>>) -> Probe {
        self.went(Outcome::Limited, detail, follows)
    }

    fn fails(self, detail: impl Into<String>, follows: impl Into<Cow<'static, str>>) -> Probe {
        self.went(Outcome::Fails, detail, follows)
    }

    fn unverified(self, detail: impl Into<String>, follows: impl Into<Cow<'static, str>>) -> Probe {
        self.went(Outcome::Unverified, detail, follows)
    }
}

impl Probe {
    fn advise(self, advice: impl Into<Cow<'static, str>>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }
}

/// Runs all probes, the most important first. If no packet passes at all, the list ends with the
/// probe of the port.
pub fn run() -> Vec<Probe> {
    let mut probes = vec![transport::user(), transport::port()];
    if probes.iter().all(|probe| probe.outcome != Outcome::Fails) {
        probes.extend([
            with_pair(identification::NAME, identification::probe),
            with_pair(transport::GSO, transport::gso),
            with_pair(transport::GRO, transport::gro),
            with_pair(buffers::RECEIVE, buffers::receive),
            buffers::send(),
            with_pair(transport::PATH_ERRORS, transport::path_errors),
            with_pair(transport::ICMP_MTU, transport::icmp_mtu),
            with_pair(transport::SOURCE_PORT, transport::source_port),
            transport::ipv6(),
            sharing::built_in(),
            sharing::steering(),
            sharing::memory(),
            sharing::multicast(),
            transport::interface_changes(),
            transport::background_threads(),
            transport::spinning(),
            transport::send_queues(),
            processes::watcher(),
            programs::under_run(),
            programs::without_run(),
        ]);
    }
    probes
}

/// The time limit for the arrival of a packet.
const ARRIVAL_TIMEOUT: Duration = Duration::from_millis(500);

/// Returns a port on a free loopback address.
fn scratch_port() -> Result<UdpPort, OpenPortError> {
    // The start differs for every call and process, and avoids the low addresses that users choose.
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.subsec_nanos());
    let start = std::process::id().wrapping_mul(0x9e37_79b9) ^ nanos;
    let open = |nth: u32| {
        let host = start.wrapping_add(nth.wrapping_mul(0x0001_2345)) & 0x3f_ffff;
        let address = Ipv4Addr::from_bits(Ipv4Addr::new(127, 128, 0, 1).to_bits() | host);
        UdpPort::open(UdpConfig::new(address.into()))
    };
    let is_taken = |opened: &_| matches!(opened, Err(OpenPortError::AddressInUse { .. }));
    (1..32).fold(open(0), |opened, nth| if is_taken(&opened) { open(nth) } else { opened })
}

/// Runs a probe that needs two ports.
fn with_pair(name: Name, probe: fn(Name, UdpPort, UdpPort) -> Probe) -> Probe {
    match (scratch_port(), scratch_port()) {
        (Ok(a), Ok(b)) => probe(name, a, b),
        (Err(error), _) | (_, Err(error)) => not_tried(name, &error),
    }
}

/// Returns the result of a probe that found no free port.
fn not_tried(name: Name, error: &OpenPortError) -> Probe {
    name.unverified(format!("no free port: {error}"), "unknown until that works")
}

/// Sends `bytes` in segments.
fn send(from: &UdpPort, to: IpAddr, bytes: &[u8], segment_size: usize) -> SendOutcome {
    send_from_port(from, ROCE_PORT, to, bytes, segment_size)
}

/// Sends a run from one of the source ports of `from`.
fn send_from_port(
    from: &UdpPort,
    from_port: u16,
    to: IpAddr,
    bytes: &[u8],
    segment_size: usize,
) -> SendOutcome {
    from.transmit(&Run {
        from: from.address(),
        from_port,
        to,
        bytes,
        segment_size,
        traffic_class: 0,
        hop_limit: 0,
    })
}

/// Datagrams that arrived together.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Arrival {
    from: IpAddr,
    from_port: u16,
    bytes: Vec<u8>,
    segment_size: usize,
}

impl Arrival {
    fn packets(&self) -> usize {
        self.bytes.len().div_ceil(self.segment_size.max(1))
    }
}

/// Returns the datagrams that arrive, until `packets` packets or the timeout.
fn arrivals(port: &UdpPort, packets: usize) -> Vec<Arrival> {
    let mut all: Vec<Arrival> = Vec::new();
    let Ok(mut buffers) = ReceiveBuffers::new(ReceiveBuffers::MAX) else { return all };
    let deadline = Instant::now() + ARRIVAL_TIMEOUT;
    loop {
        while matches!(port.receive(&mut buffers), Ok(1..)) {
            all.extend(buffers.iter().map(|datagrams| Arrival {
                from: datagrams.from,
                from_port: datagrams.from_port,
                bytes: datagrams.bytes.to_vec(),
                segment_size: datagrams.segment_size,
            }));
        }
        if all.iter().map(Arrival::packets).sum::<usize>() >= packets
            || !wait_readable(port, deadline)
        {
            return all;
        }
    }
}

/// Waits until the descriptor is readable. Returns `false` if the deadline has passed.
fn wait_readable(descriptor: impl std::os::fd::AsFd, deadline: Instant) -> bool {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return false;
    }
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) };
    let mut descriptors = [PollFd::new(&descriptor, PollFlags::IN)];
    let _ = poll(&mut descriptors, Some(&timeout));
    if descriptors[0].revents().contains(PollFlags::ERR) {
        // An error ends every poll at once until it is read. The pause prevents a busy loop.
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Returns a packet that differs from the traffic of other programs, so that probes do not take
/// foreign packets for their own.
fn marked(length: usize, mark: u8) -> Vec<u8> {
    (0..length)
        .map(|n| {
            if n < 12 {
                [0x64, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, mark][n]
            } else {
                (n as u8) ^ mark
            }
        })
        .collect()
}

/// Returns a number in a file of /proc/sys.
fn sysctl(path: &str) -> Option<usize> {
    std::fs::read_to_string(format!("/proc/sys/{path}")).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_probe_has_its_texts() {
        let probes = run();
        let names: Vec<_> = probes.iter().map(|probe| probe.name).collect();
        for probe in &probes {
            assert!(!probe.detail.is_empty() && !probe.consequence.is_empty(), "{probe:?}");
            assert!(!probe.detail.ends_with('.') && !probe.consequence.ends_with('.'), "{probe:?}");
            assert!(probe.outcome != Outcome::Works || probe.advice.is_none(), "{probe:?}");
        }
        let mut unique = names.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), names.len());
    }

    /// The outcome on every Linux that this crate is tested on.
    #[test]
    fn linux_grants_the_port_with_gso_and_steering() {
        for probe in [
            transport::port(),
            with_pair(transport::GSO, transport::gso),
            with_pair(transport::GRO, transport::gro),
            with_pair(transport::PATH_ERRORS, transport::path_errors),
            sharing::steering(),
        ] {
            // Another program may use 127.0.0.1; the probe of the port reports it.
            let expected = if probe.detail.contains("127.0.0.1 is taken") {
                Outcome::Limited
            } else {
                Outcome::Works
            };
            assert_eq!(probe.outcome, expected, "{probe:?}");
        }
    }

    #[test]
    fn the_receive_buffer_holds_packets_as_granted() {
        let probe = with_pair(buffers::RECEIVE, buffers::receive);
        let granted = sysctl("net/core/rmem_max").unwrap() >= 8 << 20;
        assert_eq!(
            probe.outcome,
            if granted { Outcome::Works } else { Outcome::Limited },
            "{probe:?}"
        );
        assert_eq!(probe.advice.is_some(), !granted);
        let held: usize =
            probe.detail.split("; ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        assert!(held >= 10, "{probe:?}");
    }

    #[test]
    fn a_taken_port_leaves_the_rest_untried() {
        let error = OpenPortError::AddressInUse {
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            owner: None,
            free: None,
        };
        let probe = not_tried(Name("anything"), &error);
        assert_eq!(probe.outcome, Outcome::Unverified);
        assert!(probe.detail.contains("no loopback address is free"), "{probe:?}");
    }
}
