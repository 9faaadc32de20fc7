//! The shape of an input. Every value means something, so that no byte of an input is wasted.

use arbitrary::Arbitrary;

use crate::headers::Values;

/// An input.
#[derive(Arbitrary, Debug)]
pub struct Plan {
    /// The device and its queue pairs.
    pub setup: Setup,
    /// What happens.
    pub steps: Vec<Step>,
}

/// The device and its queue pairs at the start.
#[derive(Arbitrary, Debug)]
pub struct Setup {
    /// Path MTU, small ones more often.
    pub mtu: u8,
    /// READs and atomics from here.
    pub max_rd_atomic: u8,
    /// READs and atomics from the peer.
    pub max_dest_rd_atomic: u8,
    /// Retries, modulo 8.
    pub retry_cnt: u8,
    /// RNR retries, modulo 8.
    pub rnr_retry: u8,
    /// Local ACK timeout, modulo 32.
    pub timeout: u8,
    /// What peers may do through the queue pairs; 0 is everything.
    pub access: u8,
    /// First PSNs: near the wrap, or far from it.
    pub psn: u8,
    /// Entries of the completion queue: few, or enough for everything.
    pub small_cq: bool,
    /// Completions for all sends.
    pub sq_sig_all: bool,
    /// Packets of one run, 1 for a port without GSO.
    pub max_run_segments: u8,
    /// Bytes of responses that may be asked for at once, in KiB.
    pub read_budget_kib: u8,
    /// State of each queue pair.
    pub states: [u8; 3],
    /// Which peer each queue pair has; the upper five bits: of which services they are.
    pub peers: u8,
}

/// One step.
#[derive(Arbitrary, Debug)]
pub enum Step {
    /// A packet comes.
    Packet(Packet),
    /// Several packets come together.
    Run(Vec<Packet>),
    /// Bytes come as a packet, with a right ICRC behind them.
    Bytes { from: u8, bytes: Vec<u8> },
    /// The right answer to a request that was sent comes; `nth` counts back from the last.
    Answer { nth: u8, acknowledge: bool, skip: u8 },
    /// An acknowledgement of any syndrome comes for a request that was sent.
    Acknowledge { nth: u8, syndrome: u8 },
    /// Time passes: 2^(`exponent` mod 40) ns, or until the next deadline.
    Wait { exponent: u8, to_deadline: bool },
    /// What is due is done.
    Timeouts,
    /// What can be sent is sent.
    Transmit,
    /// Send work requests are posted, as one list.
    PostSend { qp: u8, requests: Vec<Send> },
    /// Receive work requests are posted.
    PostRecv { qp: u8, count: u8, place: Place, second: Option<Place> },
    /// The queue pair is modified.
    Modify { qp: u8, how: u8, value: u8 },
    /// A region is deregistered, or registered again.
    Region { nr: u8 },
    /// A queue pair is destroyed, or created again.
    QueuePair { qp: u8, connect: bool },
    /// Completions are polled.
    Poll,
}

/// A piece of memory: a region and a place in it, which may hang over its end.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Place {
    /// Which region; its upper bits break the key.
    pub region: u8,
    /// Where.
    pub offset: u16,
    /// How long.
    pub length: u16,
}

/// A send work request.
#[derive(Arbitrary, Debug)]
pub struct Send {
    /// Operation.
    pub op: u8,
    /// Flags.
    pub flags: u8,
    /// Local memory.
    pub local: Place,
    /// Second piece of local memory.
    pub second: Option<Place>,
    /// The peer's memory.
    pub remote: u16,
    /// Operands.
    pub operand: u8,
}

/// A packet.
#[derive(Arbitrary, Debug)]
pub struct Packet {
    /// For which queue pair.
    pub qp: u8,
    /// Which opcode: of RC, but for high values.
    pub opcode: u8,
    /// How far from the expected PSN; the extremes are farther.
    pub psn: i8,
    /// A, SE, F, B, M and what is to be wrong: ICRC, P_Key, source, QPN.
    pub flags: u16,
    /// Where RETH and AtomicETH point.
    pub place: Place,
    /// Whether the RETH's length is right for the payload, or `place`'s.
    pub own_length: bool,
    /// Payload: a multiple of the MTU, or few bytes.
    pub payload: u8,
    /// The other header fields.
    pub values: Values,
}
