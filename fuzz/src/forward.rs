//! A packet that another process of the address forwards, up to the device.
//!
//! The first part of an input is any message of a local socket. The second part is a plan of
//! packets. The other process may claim any addresses and lengths, which no socket of this process
//! has checked. All packets of the plan have a correct ICRC, because the fuzzer cannot compute it.
//!
//! Properties: nothing panics. A parsed message is written as the same bytes. Each packet is
//! counted once, as received or as dropped. A response goes to an address of the packet's IP
//! version. Memory that peers may only read does not change.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arbitrary::{Arbitrary, Unstructured};
use urxe_stack::device::counters::Counter;
use urxe_stack::device::{DeviceConfig, ReceiveScratch};
use urxe_stack::memory::Access;
use urxe_stack::port::Datagrams;
use urxe_stack::port::sharing::forward::{self, HEADER_LEN};
use urxe_test_support::host::{A, B, Host, HostOptions, connect};
use urxe_test_support::wire::Wire;
use urxe_wire::packet::ICRC_LEN;
use urxe_wire::{Gid, IcrcSeed, ROCE_PORT};

/// The maximum number of packets of a plan, and of bytes in each.
const MAX_PACKETS: usize = 32;
const MAX_LEN: usize = 4500;
/// Bytes of the memory of each host.
const MEMORY: usize = 4096;

#[derive(Arbitrary, Debug)]
struct Plan {
    message: Vec<u8>,
    packets: Vec<Packet>,
}

#[derive(Arbitrary, Debug)]
struct Packet {
    /// Source and destination address: of the connection or of others.
    from: u8,
    to: u8,
    from_port: u16,
    /// The length of a segment: that of the packet or another.
    segment_size: Option<u32>,
    traffic_class: u8,
    hop_limit: u8,
    /// The destination: a queue pair of the device, QP1, or the bytes' own.
    dest_qp: u8,
    /// Whether the PSN is the expected one.
    is_expected: bool,
    /// Whether address and key of the RETH are those of the region.
    has_key: bool,
    bytes: Vec<u8>,
}

fn address(n: u8) -> IpAddr {
    let any = u128::from(n).wrapping_mul(0x1234_5678_9abc_def0_1122_3344_5566_7788);
    match n {
        0..128 => A.into(),
        128..192 => B.into(),
        192..200 => Ipv4Addr::new(224, 0, 0, n).into(),
        200..208 => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, n.into()).into(),
        208..212 => Ipv4Addr::UNSPECIFIED.into(),
        212..216 => Ipv4Addr::BROADCAST.into(),
        216..220 => A.to_ipv6_mapped().into(),
        220..224 => Ipv6Addr::UNSPECIFIED.into(),
        _ => Ipv6Addr::from(any).into(),
    }
}

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let Ok(plan) = Plan::arbitrary(&mut input) else { return };
    let (a, b, wire) = (host(A, 1), host(B, 2), Wire::default());
    connect(&a, a.qp, &b, b.qp);
    b.write(0, &[0x5a; MEMORY]);
    let mut scratch = ReceiveScratch::collecting_unmatched();
    message(&plan.message, &b, &mut scratch, &wire);
    // Any message, and not only those that a correct process sends.
    message(bytes, &b, &mut scratch, &wire);
    for packet in plan.packets.iter().take(MAX_PACKETS) {
        let message = packet.message(&a, &b);
        self::message(&message, &b, &mut scratch, &wire);
    }
    assert!(b.bytes(0, MEMORY).iter().all(|byte| *byte == 0x5a), "peers may only read");
}

fn host(address: Ipv4Addr, seed: u64) -> Host {
    let config = DeviceConfig::new(vec![Gid::from_ip(address.into())], seed);
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
    Host::with(address.into(), config, HostOptions { memory: MEMORY, access, ..Default::default() })
}

impl Packet {
    /// Returns the message of a process that forwards the packet.
    fn message(&self, a: &Host, b: &Host) -> Vec<u8> {
        let (from, to) = (address(self.from), address(self.to.wrapping_add(128)));
        let mut bytes = self.bytes[..self.bytes.len().min(MAX_LEN)].to_vec();
        bytes.resize(bytes.len().max(12), 0);
        let dest_qp = match self.dest_qp {
            0..160 => b.qp.qpn().value(),
            160..200 => 1,
            200..216 => 0xff_ffff,
            216..232 => a.qp.qpn().value() ^ 0x80_0000,
            _ => u32::from_be_bytes([0, bytes[5], bytes[6], bytes[7]]),
        };
        bytes[5..8].copy_from_slice(&dest_qp.to_be_bytes()[1..]);
        if self.is_expected {
            let expected = b.device.query_qp(b.qp).expect("it exists").rq_psn.value();
            bytes[9..12].copy_from_slice(&expected.to_be_bytes()[1..]);
        }
        if let (true, Some(reth)) = (self.has_key, bytes.get_mut(12..24)) {
            reth[..8].copy_from_slice(&b.mr.iova.to_be_bytes());
            reth[8..].copy_from_slice(&b.mr.rkey.value().to_be_bytes());
        }
        let end = bytes.len();
        bytes.resize(end + ICRC_LEN, 0);
        if let Some(seed) = IcrcSeed::new(from, self.from_port, to, ROCE_PORT) {
            // A packet that is too short for an ICRC stays as it is.
            let _ = seed.append(0, &mut bytes, end);
        }
        let segment_size = self.segment_size.map_or(bytes.len(), |size| size as usize);
        let datagrams = Datagrams {
            from,
            from_port: self.from_port,
            to,
            bytes: &bytes,
            segment_size,
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
        };
        [&forward::header(&datagrams)[..], &bytes].concat()
    }
}

/// Passes a message to the device as the driver does.
fn message(message: &[u8], host: &Host, scratch: &mut ReceiveScratch, wire: &Wire) {
    let Some(datagrams) = forward::parse(message) else { return };
    assert_eq!(forward::header(&datagrams), message[..HEADER_LEN]);
    assert_eq!(datagrams.bytes, &message[HEADER_LEN..]);
    let count = datagrams.segments().len();
    assert!((1..=datagrams.bytes.len()).contains(&count));
    assert_eq!(datagrams.segments().map(<[u8]>::len).sum::<usize>(), datagrams.bytes.len());
    let before = host.counter(Counter::RcvdPkts);
    host.device.receive(host.clock.now(), &datagrams, scratch);
    assert!(host.counter(Counter::RcvdPkts) - before <= count as u64);
    let unmatched = scratch.unmatched.as_ref().map_or(&[][..], |unmatched| unmatched.segments());
    for &position in unmatched {
        let bytes = datagrams.segments().nth(position.into()).expect("the position of a segment");
        let packet = Datagrams { bytes, segment_size: bytes.len(), ..datagrams };
        host.device.receive_management(host.clock.now(), &packet);
    }
    host.transmit(wire);
    while let Some(run) = wire.pop() {
        assert_eq!(run.from.is_ipv4(), run.to.is_ipv4(), "{run:?}");
        assert!(run.packets().count() > 0);
        wire.recycle(run);
    }
}
