//! The form of an input. Every value is valid, so that no byte of an input is wasted.

use arbitrary::Arbitrary;

use crate::headers::Values;

/// An input.
#[derive(Arbitrary, Debug)]
pub struct Plan {
    /// The device and its queue pairs.
    pub setup: Setup,
    /// The steps.
    pub steps: Vec<Step>,
}

/// The device and its queue pairs at the start.
#[derive(Arbitrary, Debug)]
pub struct Setup {
    /// The path MTU; small ones are more frequent.
    pub mtu: u8,
    /// Outstanding READs and atomics of the device.
    pub max_rd_atomic: u8,
    /// Outstanding READs and atomics of the peer.
    pub max_dest_rd_atomic: u8,
    /// Retries, modulo 8.
    pub retry_cnt: u8,
    /// RNR retries, modulo 8.
    pub rnr_retry: u8,
    /// Local ACK timeout, modulo 32.
    pub timeout: u8,
    /// The access flags of the queue pairs; 0 stands for all.
    pub access: u8,
    /// The first PSNs: near the wrap, or far from it.
    pub psn: u8,
    /// Whether the completion queue has few entries, or enough for everything.
    pub small_cq: bool,
    /// Whether all sends are signalled.
    pub sq_sig_all: bool,
    /// The maximum number of packets in a run, 1 for a port without GSO.
    pub max_run_segments: u8,
    /// The maximum of outstanding response bytes, in KiB.
    pub read_budget_kib: u8,
    /// The state of each queue pair.
    pub states: [u8; 3],
    /// The peer of each queue pair; the upper five bits select the services.
    pub peers: u8,
}

/// A step of a plan.
#[derive(Arbitrary, Debug)]
pub enum Step {
    /// Receives a packet.
    Packet(Packet),
    /// Receives several packets together.
    Run(Vec<Packet>),
    /// Receives any bytes as a packet, with a correct ICRC behind them.
    Bytes { from: u8, bytes: Vec<u8> },
    /// Receives the right response to a request; `nth` counts back from the last request.
    Answer { nth: u8, acknowledge: bool, skip: u8 },
    /// Receives an acknowledgement with any syndrome for a request.
    Acknowledge { nth: u8, syndrome: u8 },
    /// Lets time pass: 2^(`exponent` mod 40) ns, or until the next deadline.
    Wait { exponent: u8, to_deadline: bool },
    /// Handles expired timers.
    Timeouts,
    /// Transmits pending packets.
    Transmit,
    /// Posts send work requests as one list.
    PostSend { qp: u8, requests: Vec<Send> },
    /// Posts receive work requests.
    PostRecv { qp: u8, count: u8, place: Place, second: Option<Place> },
    /// Modifies the queue pair.
    Modify { qp: u8, how: u8, value: u8 },
    /// Deregisters a region, or registers it again.
    Region { nr: u8 },
    /// Destroys a queue pair, or creates it again.
    QueuePair { qp: u8, connect: bool },
    /// Polls all completions.
    Poll,
}

/// A range in a region, which may extend beyond its end.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Place {
    /// The region; its upper bits break the key.
    pub region: u8,
    /// The offset.
    pub offset: u16,
    /// The length.
    pub length: u16,
}

/// A send work request.
#[derive(Arbitrary, Debug)]
pub struct Send {
    /// The operation.
    pub op: u8,
    /// The flags.
    pub flags: u8,
    /// The local memory.
    pub local: Place,
    /// A second piece of local memory.
    pub second: Option<Place>,
    /// The place in the peer's memory.
    pub remote: u16,
    /// The operands.
    pub operand: u8,
}

/// A packet.
#[derive(Arbitrary, Debug)]
pub struct Packet {
    /// The queue pair.
    pub qp: u8,
    /// The opcode: of the queue pair's service, except for high values.
    pub opcode: u8,
    /// The distance from the expected PSN; the extreme values are farther.
    pub psn: i8,
    /// The bits A, SE, F, B, M, and the intended faults: ICRC, P_Key, source, QPN.
    pub flags: u16,
    /// The range of RETH and AtomicETH.
    pub place: Place,
    /// Whether the RETH's length is that of `place` instead of the payload's.
    pub own_length: bool,
    /// The payload: a multiple of the MTU, or a few bytes.
    pub payload: u8,
    /// The other header fields.
    pub values: Values,
}
