//! A lane: a connection of one service between two processes, which send each other verified
//! messages in turn.
//!
//! ```text
//!  starter                               responder
//!  message n      SEND or WRITE  ---->   verifies length and bytes
//!  verifies       <----  SEND or WRITE   message n + 1
//! ```
//! Number, length, bytes and operation of a message follow from the lane's name, so both ends know
//! them. Immediate data has the number. Beside a message, an end of a reliable service reads a part
//! of the peer's library, whose bytes it knows, and adds 1 to a word of the peer.
//!
//! An unreliable service may lose a message. Then the starter sends another one after
//! [`LOST_AFTER`], which is longer than any pause of the peer.
//!
//! The memory of an end, in parts of equal size:
//!
//! | part | content |
//! |---|---|
//! | 0 | the message that this end sends |
//! | 1 | a SEND of the peer |
//! | 2 | a WRITE of the peer |
//! | 3 | the library that the peer reads |
//! | 4 | the part of the peer's library that this end read |
//! | 5 | the word that the peer adds to, and the former value of the peer's word |

use std::time::{Duration, Instant};

use urxe::{
    Access, AckTimeout, AddressHandle, Completion, CompletionQueue, ConnectOptions, GRH_LEN,
    MemoryRegion, ProtectionDomain, QKey, QpEndpoint, QpType, Qpn, QueuePair, RecvRequest,
    RemoteRegion, SendRequest, SharedReceiveQueue, SrqId, WcOpcode, XrcTarget,
};
use urxe_stack::rng::Rng;

use crate::content::{WORD, fill, key, length, mix};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The longest message of a connection.
const LONGEST: usize = 4 << 20;
/// The longest datagram, the largest path MTU.
const LONGEST_DATAGRAM: usize = 4096;
/// The time after which the starter of an unreliable lane sends again. No process pauses so long.
const LOST_AFTER: Duration = Duration::from_secs(15);
/// The longest pause of an end between two messages, in microseconds.
const PAUSE_US: u64 = 20_000;
const QKEY: QKey = QKey(0x50_4b);
/// The space after the longest message, for the network header of a datagram.
const MARGIN: usize = 64;

/// The kinds of work requests: the low byte of `wr_id`.
const RECEIVE: u64 = 0;
const MESSAGE: u64 = 1;
const READ: u64 = 2;
const ADD: u64 = 3;

/// Returns the lane of a work request.
pub fn lane_of(wr_id: u64) -> u64 {
    wr_id >> 8
}

/// The queue pairs of a lane's end.
enum Ends {
    Connection(QueuePair),
    Datagram { qp: QueuePair, pd: ProtectionDomain },
    Xrc { qp: QueuePair, target: XrcTarget, srq: SharedReceiveQueue },
}

/// The peer's values.
struct Peer {
    memory: RemoteRegion,
    qpn: Qpn,
    /// The address of a datagram's destination.
    ah: Option<AddressHandle>,
    /// The shared receive queue of XRC.
    srq: Option<SrqId>,
}

/// Memory for comparisons, which all lanes share.
pub struct Scratch {
    found: Vec<u8>,
    expected: Vec<u8>,
    /// The next message gets a wrong byte, to test the comparison.
    pub spoils: bool,
}

impl Scratch {
    pub fn new() -> Self {
        // Not zero, so that the system backs it with memory at once.
        Self { found: vec![1; LONGEST], expected: vec![1; LONGEST], spoils: false }
    }
}

/// One end of a lane.
pub struct Lane {
    name: u64,
    starts: bool,
    ends: Ends,
    peer: Option<Peer>,
    region: MemoryRegion,
    longest: usize,
    /// The number of the next message of either end.
    next: u32,
    has_turn: bool,
    /// The time of the next message of this end.
    due: Instant,
    /// Work requests of the send queue without a completion.
    outstanding: u32,
    /// The first word and the length of the outstanding READ.
    read: (usize, usize),
    /// The sum that this end added to the peer's word.
    added: u64,
    /// The time of the last message of either end.
    pub last: Instant,
    pub messages: u64,
    pub bytes: u64,
    pub lost: u64,
    /// The kind and status of the completion that ended the lane.
    pub failed: Option<String>,
}

impl Lane {
    /// Creates an end of a service (`rc`, `uc`, `ud`, `xrc`), which [`connect`](Self::connect)
    /// completes.
    pub fn new(
        name: u64,
        service: &str,
        pd: &ProtectionDomain,
        cq: &CompletionQueue,
        scratch: &mut Scratch,
    ) -> Result<Self> {
        let create = |qp_type| pd.queue_pair(cq).qp_type(qp_type).max_send_wr(8).create();
        let ends = match service {
            "rc" => Ends::Connection(create(QpType::Rc)?),
            "uc" => Ends::Connection(create(QpType::Uc)?),
            "ud" => {
                let qp = create(QpType::Ud)?;
                qp.start_datagrams(QKEY)?;
                Ends::Datagram { qp, pd: pd.clone() }
            }
            "xrc" => {
                let domain = pd.device().new_xrc_domain()?;
                let srq = pd.shared_receive_queue(4).xrc(&domain, cq).create()?;
                Ends::Xrc { qp: create(QpType::XrcSend)?, target: domain.target()?, srq }
            }
            other => return Err(format!("no service {other}").into()),
        };
        let longest = if service == "ud" { LONGEST_DATAGRAM } else { LONGEST };
        let rights = Access::LOCAL_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_WRITE
            | Access::REMOTE_ATOMIC;
        let region = pd.allocate(5 * (longest + MARGIN) + 2 * WORD, rights)?;
        let now = Instant::now();
        let lane = Self {
            name,
            starts: false,
            ends,
            peer: None,
            region,
            longest,
            next: 0,
            has_turn: false,
            due: now,
            outstanding: 0,
            read: (0, 0),
            added: 0,
            last: now,
            messages: 0,
            bytes: 0,
            lost: 0,
            failed: None,
        };
        // All parts get memory of the system at once. So the process does not grow later.
        let library = &mut scratch.expected[..longest];
        fill(library_key(name), 0, library);
        for part in 0..5 {
            lane.region.write(lane.part(part), library)?;
        }
        Ok(lane)
    }

    /// Returns the values that the peer needs, as words.
    pub fn endpoint(&self) -> String {
        let memory = self.region.remote();
        match &self.ends {
            Ends::Connection(qp) | Ends::Datagram { qp, .. } => {
                format!("{} {memory}", qp.endpoint())
            }
            Ends::Xrc { qp, target, srq } => {
                format!("{} {memory} {} {}", qp.endpoint(), target.endpoint(), srq.id().0)
            }
        }
    }

    /// Connects to the end whose endpoint has these words. The starter sends first. `timeout` is
    /// the code of the time after which an unacknowledged packet is sent again.
    pub fn connect(&mut self, endpoint: &[&str], starts: bool, timeout: u8) -> Result<()> {
        let options = ConnectOptions::new()
            .timeout(AckTimeout::new(timeout).ok_or("a timeout has five bits")?);
        let (to, memory): (QpEndpoint, _) = match endpoint {
            [to, memory, ..] => (to.parse()?, memory.parse()?),
            _ => return Err("an endpoint has two words or four".into()),
        };
        let mut peer = Peer { memory, qpn: to.qpn, ah: None, srq: None };
        match (&self.ends, &endpoint[2..]) {
            (Ends::Connection(qp), []) => {
                qp.init(&options)?;
                self.post_receive()?;
                qp.connect(&to, &options)?;
            }
            (Ends::Datagram { pd, .. }, []) => {
                peer.ah = Some(pd.address_handle(to.gid)?);
                self.post_receive()?;
            }
            (Ends::Xrc { qp, target, .. }, [to_target, srq]) => {
                self.post_receive()?;
                peer.srq = Some(SrqId(srq.parse()?));
                target.connect(&to, &options)?;
                qp.connect(&to_target.parse()?, &options)?;
            }
            _ => return Err("the endpoint belongs to another service".into()),
        }
        self.peer = Some(peer);
        (self.starts, self.has_turn, self.last) = (starts, starts, Instant::now());
        Ok(())
    }

    fn part(&self, number: usize) -> usize {
        number * (self.longest + MARGIN)
    }

    fn wr_id(&self, kind: u64) -> u64 {
        self.name << 8 | kind
    }

    fn is_reliable(&self) -> bool {
        match &self.ends {
            Ends::Connection(qp) => qp.qp_type() == QpType::Rc,
            Ends::Datagram { .. } => false,
            Ends::Xrc { .. } => true,
        }
    }

    /// The bytes in front of a received SEND.
    fn header(&self) -> usize {
        if matches!(self.ends, Ends::Datagram { .. }) { GRH_LEN } else { 0 }
    }

    /// Returns whether a message is a WRITE.
    fn is_write(&self, key: u64) -> bool {
        !matches!(self.ends, Ends::Datagram { .. }) && mix(!key) & 1 == 1
    }

    fn post_receive(&self) -> Result<()> {
        let at = self.part(1);
        let into = self.region.slice(at..at + self.header() + self.longest)?;
        let request = RecvRequest::new(into).wr_id(self.wr_id(RECEIVE));
        match &self.ends {
            Ends::Connection(qp) | Ends::Datagram { qp, .. } => qp.post_recv(&request)?,
            Ends::Xrc { srq, .. } => srq.post_recv(&request)?,
        }
        Ok(())
    }

    /// Returns the time of this end's next message, if this end is to send.
    pub fn due(&mut self, now: Instant) -> Option<Instant> {
        let peer_is_late = now.duration_since(self.last) > LOST_AFTER;
        if self.starts && !self.has_turn && !self.is_reliable() && peer_is_late {
            self.lost += 1;
            self.next += 1;
            self.has_turn = true;
        }
        let may_send = self.has_turn && self.outstanding == 0 && self.failed.is_none();
        (may_send && self.peer.is_some()).then_some(self.due)
    }

    /// Sends the next message. Posts a READ and an addition before some messages.
    pub fn send(&mut self, rng: &mut Rng, scratch: &mut Scratch) -> Result<()> {
        if self.is_reliable() {
            if rng.below(4) == 0 {
                self.post_read(rng)?;
            }
            if rng.below(4) == 0 {
                let old = self.part(5) + WORD;
                let word = self.peer()?.memory.slice(self.part(5) as u64..)?.slice(..8)?;
                let add = SendRequest::fetch_add(self.region.slice(old..old + WORD)?, word, 1);
                self.post(ADD, add)?;
                self.outstanding += 1;
            }
        }
        let key = key(self.name, self.next);
        let len = length(key, self.longest);
        fill(key, 0, &mut scratch.expected[..len]);
        if scratch.spoils && len > 0 {
            scratch.expected[len / 2] ^= 1;
            scratch.spoils = false;
        }
        self.region.write(self.part(0), &scratch.expected[..len])?;
        let message = self.region.slice(self.part(0)..self.part(0) + len)?;
        let request = if self.is_write(key) {
            let to = self.peer()?.memory.slice(self.part(2) as u64..)?;
            SendRequest::write_imm(message, to, self.next)
        } else {
            SendRequest::send_imm(message, self.next)
        };
        self.post(MESSAGE, request)?;
        self.outstanding += 1;
        self.next += 1;
        (self.has_turn, self.last) = (false, Instant::now());
        Ok(())
    }

    fn post_read(&mut self, rng: &mut Rng) -> Result<()> {
        let len = length(rng.next_u64(), self.longest);
        let first = rng.index((self.longest - len) / WORD + 1);
        let from = (self.part(3) + first * WORD) as u64;
        let from = self.peer()?.memory.slice(from..from + len as u64)?;
        let into = self.region.slice(self.part(4)..self.part(4) + len)?;
        self.post(READ, SendRequest::read(into, from))?;
        self.read = (first, len);
        self.outstanding += 1;
        Ok(())
    }

    fn peer(&self) -> Result<&Peer> {
        self.peer.as_ref().ok_or_else(|| "the lane is not connected".into())
    }

    fn post(&self, kind: u64, request: SendRequest<'_>) -> Result<()> {
        let (peer, request) = (self.peer()?, request.wr_id(self.wr_id(kind)).signaled());
        let request = match (&peer.ah, peer.srq) {
            (Some(ah), _) => request.to(ah, peer.qpn, QKEY),
            (None, Some(srq)) => request.to_srq(srq),
            (None, None) => request,
        };
        let (Ends::Connection(qp) | Ends::Datagram { qp, .. } | Ends::Xrc { qp, .. }) = &self.ends;
        Ok(qp.post_send(&request)?)
    }

    /// Handles a completion of this lane.
    ///
    /// # Errors
    /// Wrong data. A failed request only ends the lane, because the peer may have been killed.
    pub fn complete(
        &mut self,
        done: &Completion,
        rng: &mut Rng,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let kind = done.wr_id & 0xff;
        if kind != RECEIVE {
            self.outstanding -= 1;
        }
        if !done.status.is_success() {
            let name = ["receive", "message", "read", "add"][kind as usize];
            self.failed.get_or_insert(format!("{name}_{:?}", done.status));
            return Ok(());
        }
        match kind {
            RECEIVE => self.receive(done, rng, scratch),
            READ => self.check_read(scratch),
            ADD => {
                let old = self.region.load_u64(self.part(5) + WORD)?;
                if old != self.added {
                    return Err(self.wrong(&format!("the sum is {old}, not {}", self.added)));
                }
                self.added += 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn wrong(&self, what: &str) -> Box<dyn std::error::Error> {
        format!("wrong: lane {}, message {}: {what}", self.name, self.next).into()
    }

    fn receive(&mut self, done: &Completion, rng: &mut Rng, scratch: &mut Scratch) -> Result<()> {
        let number = done.imm_data().ok_or_else(|| self.wrong("no immediate data"))?;
        if self.is_reliable() && (number != self.next || self.has_turn) {
            return Err(self.wrong(&format!("message {number} arrived")));
        }
        if number != self.next || self.has_turn {
            if self.starts || number < self.next {
                // The answer to a message that counts as lost.
                return self.post_receive();
            }
            self.lost += 1;
            self.next = number;
        }
        let key = key(self.name, number);
        let len = length(key, self.longest);
        let (opcode, at) = match self.is_write(key) {
            true => (WcOpcode::RecvRdmaWithImm, self.part(2)),
            false => (WcOpcode::Recv, self.part(1) + self.header()),
        };
        let header = if opcode == WcOpcode::Recv { self.header() } else { 0 };
        if done.opcode != opcode || done.byte_len as usize != header + len {
            let what = format!("{:?} of {} bytes, not {len}", done.opcode, done.byte_len);
            return Err(self.wrong(&what));
        }
        self.compare(at, len, key, 0, scratch)?;
        self.post_receive()?;
        self.messages += 1;
        self.bytes += len as u64;
        self.next += 1;
        self.last = Instant::now();
        (self.has_turn, self.due) = (true, self.last + Duration::from_micros(rng.below(PAUSE_US)));
        Ok(())
    }

    fn check_read(&mut self, scratch: &mut Scratch) -> Result<()> {
        let (first, len) = self.read;
        self.compare(self.part(4), len, library_key(self.name), first, scratch)?;
        self.bytes += len as u64;
        Ok(())
    }

    /// Compares received bytes with a content, from its word `first` on.
    fn compare(
        &self,
        at: usize,
        len: usize,
        key: u64,
        first: usize,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let (found, expected) = (&mut scratch.found[..len], &mut scratch.expected[..len]);
        self.region.read(at, found)?;
        fill(key, first, expected);
        if found == expected {
            return Ok(());
        }
        let differs = |(found, expected): (&u8, &u8)| found != expected;
        let byte = found.iter().zip(expected.iter()).position(differs).unwrap_or(len);
        Err(self.wrong(&format!("byte {byte} of {len} differs")))
    }
}

/// Returns the content of the library, which both ends of a lane have.
fn library_key(lane: u64) -> u64 {
    key(!lane, 0)
}
