//! A stream with any peer: a plan of completions, of writes of the peer, and of calls.

use std::collections::VecDeque;
use std::net::Shutdown;
use std::ops::Range;

use arbitrary::Arbitrary;
use urxe_rsocket::protocol::connect::ConnData;
use urxe_rsocket::protocol::message::{Message, Work};
use urxe_rsocket::protocol::segment::{Iomap, Segment, array};
use urxe_rsocket::protocol::sender::TARGETS;
use urxe_rsocket::protocol::stream::{Bytes, CONTROLS, ListRead, LocalMemory, Post, Sizes, Stream};

/// The maximum number of executed steps.
const MAX_STEPS: usize = 400;
const MEMORY: LocalMemory = LocalMemory { list: (0x1000, 7), recv_buffer: (0x10_0000, 8) };

/// An input.
#[derive(Arbitrary, Debug)]
pub struct Plan {
    /// The sizes of this side, in units.
    sizes: [u8; 5],
    /// The private data of the peer.
    peer: [u8; ConnData::LEN],
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    /// A message of the peer arrives.
    Arrives { op: u8, value: u32 },
    /// A receive fails.
    Fails,
    /// The peer writes into the list.
    Writes { at: u8, bytes: [u8; 24] },
    /// The program sends.
    Sends { wanted: u32 },
    /// The program takes bytes.
    Takes { wanted: u16 },
    /// The program writes into memory that the peer has mapped.
    WritesMapped { wanted: u32, offset: u64 },
    /// The program maps memory for the peer.
    Maps { index: u16, offset: u64 },
    /// The program shuts down a direction.
    Shuts { how: u8 },
    /// The oldest pending requests complete.
    Completes { count: u8, well: bool },
}

struct End {
    stream: Stream,
    sizes: Sizes,
    list: Vec<u8>,
    /// The requests that have not completed.
    pending: VecDeque<Post>,
    /// The segments that the peer has named, in private data and in the list.
    targets: Vec<Segment>,
    iomaps: Vec<Iomap>,
    peer: ConnData,
    /// Bytes that the peer may write, and bytes that wait for the program.
    lent: u64,
    waiting: u64,
}

/// Runs a plan.
pub fn run(plan: &Plan) {
    let unit = |n: u8, most: u32| u32::from(n) % most + 1;
    let sizes = Sizes {
        send_queue: unit(plan.sizes[0], 32) as u16,
        recv_queue: unit(plan.sizes[1], 32) as u16,
        inline: u32::from(plan.sizes[2]),
        send_buffer: unit(plan.sizes[3], 16) * 1000,
        recv_buffer: unit(plan.sizes[3] >> 4, 16) * 999,
        iomaps: u32::from(plan.sizes[4]) % 5,
    };
    let mut said = plan.peer;
    said[0] = 1;
    let peer = ConnData::parse(&said).expect("a known version");
    let mut end = End {
        stream: Stream::new(sizes, MEMORY, &peer).expect("memory"),
        sizes,
        list: vec![0; sizes.list_len()],
        pending: VecDeque::new(),
        targets: vec![peer.first_target],
        iomaps: Vec::new(),
        peer,
        lent: u64::from(sizes.recv_buffer / 2),
        waiting: 0,
    };
    for step in plan.steps.iter().take(MAX_STEPS) {
        end.run(step);
        end.grant();
        end.check();
    }
}

impl End {
    fn run(&mut self, step: &Step) {
        match *step {
            Step::Arrives { op, value } => self.arrives(u32::from(op) << 29 | value & 0x1fff_ffff),
            Step::Fails => self.complete_receive(None),
            Step::Writes { at, bytes } => {
                let at = usize::from(at) * 8 % self.list.len();
                let end = (at + bytes.len()).min(self.list.len());
                self.list[at..end].copy_from_slice(&bytes[..end - at]);
            }
            Step::Sends { wanted } => self.send(wanted),
            Step::Takes { wanted } => self.take(wanted.into()),
            Step::WritesMapped { wanted, offset } => self.write_mapped(wanted, offset),
            Step::Maps { index, offset } => self.map(index, offset),
            Step::Shuts { how } => {
                let how = [Shutdown::Read, Shutdown::Write, Shutdown::Both][usize::from(how % 3)];
                let control = self.stream.shutdown(how).and_then(|what| self.stream.control(what));
                self.pending.extend(control);
            }
            Step::Completes { count, well } => {
                for post in self.pending.drain(..usize::from(count).min(self.pending.len())) {
                    self.stream.complete(post.message.work_id(), None, well);
                }
            }
        }
    }

    fn arrives(&mut self, word: u32) {
        let was_open = self.stream.is_open();
        let waiting = |stream: &Stream| -> u64 {
            stream.receiver.readable(usize::MAX).iter().map(|range| range.len() as u64).sum()
        };
        let before = waiting(&self.stream);
        assert_eq!(before, self.waiting);
        self.complete_receive(Some(word));
        let taken = waiting(&self.stream) - before;
        let said = match Message::from_bits(word) {
            Message::Data(bytes) => u64::from(bytes),
            _ => 0,
        };
        assert!(taken <= self.lent, "{taken} bytes, of which {} were lent", self.lent);
        assert!(taken == said || taken == 0 && !self.stream.is_open(), "{taken} bytes of {said}");
        // A connection that has ended takes what was on its way, and ends for no other reason.
        assert!(was_open || !self.stream.is_open());
        self.lent -= taken;
        self.waiting += taken;
    }

    fn complete_receive(&mut self, word: Option<u32>) {
        match self.stream.complete(Work::RECEIVE_ID, word, word.is_some()) {
            ListRead::None => {}
            ListRead::Targets => {
                let list = [0, 1].map(|nr| {
                    let segment = Segment::from_bytes(&array(&self.list, nr * Segment::LEN));
                    self.targets.push(segment);
                    segment
                });
                let taken = self.stream.update_targets(list);
                for (place, taken) in self.list.chunks_mut(Segment::LEN).zip(taken) {
                    if taken {
                        place.fill(0);
                    }
                }
            }
            ListRead::Iomap(index) => {
                assert!(u32::from(index) < self.sizes.iomaps);
                let at = TARGETS * Segment::LEN + usize::from(index) * Iomap::LEN;
                let iomap = Iomap::from_bytes(&array(&self.list, at));
                self.iomaps.push(iomap);
                self.stream.set_iomap(index, iomap);
            }
        }
    }

    fn send(&mut self, wanted: u32) {
        if !self.stream.is_writable() || !self.stream.sender.is_ready() || wanted == 0 {
            return;
        }
        let post = self.stream.send(wanted);
        let Bytes::Stream(transfer) = &post.bytes else { panic!("{post:?}") };
        assert!((1..=wanted).contains(&transfer.len), "{transfer:?}");
        assert!(post.has_imm && post.message == Message::Data(transfer.len));
        let named = self.targets.iter().any(|target| {
            let inside = transfer.addr.wrapping_sub(target.addr);
            let end = inside.checked_add(transfer.len.into());
            target.key == transfer.key && end.is_some_and(|end| end <= target.length.into())
        });
        assert!(named, "{transfer:?} is not in {:?}", self.targets);
        self.pending.push_back(post);
    }

    fn write_mapped(&mut self, wanted: u32, offset: u64) {
        let is_mapped = self.stream.mapped_len(offset).is_some();
        if !self.stream.is_writable() || !self.stream.sender.is_ready() || wanted == 0 {
            return;
        }
        let post = self.stream.send_to(wanted, offset);
        assert_eq!(post.is_some(), is_mapped);
        let Some(post) = post else { return };
        let Bytes::Stream(transfer) = &post.bytes else { panic!("{post:?}") };
        assert!((1..=wanted).contains(&transfer.len) && !post.has_imm);
        let named = self.iomaps.iter().any(|iomap| {
            let place = iomap.locate(offset);
            let is_long = |(addr, left)| (addr, true) == (post.to.0, left >= transfer.len.into());
            iomap.memory.key == post.to.1 && place.is_some_and(is_long)
        });
        assert!(named, "{post:?} is not in {:?}", self.iomaps);
        self.pending.push_back(post);
    }

    fn map(&mut self, index: u16, offset: u64) {
        let remote = self.stream.remote_iomaps();
        if remote == 0 || !self.stream.is_writable() || !self.stream.sender.is_ready() {
            return;
        }
        let index = (u32::from(index) % remote) as u16;
        let memory = Segment { addr: 0x7000, key: 9, length: 100 };
        let post = self.stream.map(index, Iomap { offset, memory });
        let behind = u64::from(self.peer.targets.length) * Segment::LEN as u64;
        let list = self.peer.targets.addr.wrapping_add(behind);
        let inside = post.to.0.wrapping_sub(list);
        assert!(inside + Iomap::LEN as u64 <= u64::from(remote) * Iomap::LEN as u64, "{post:?}");
        assert_eq!(post.to.1, self.peer.targets.key);
        self.pending.push_back(post);
    }

    /// Takes bytes that wait for the program.
    fn take(&mut self, wanted: usize) {
        let ranges = self.stream.receiver.readable(wanted);
        let size = self.sizes.recv_buffer as usize / 2 * 2;
        assert!(ranges.iter().all(|range| range.start <= range.end && range.end <= size));
        let len: usize = ranges.iter().map(Range::len).sum();
        assert_eq!(len as u64, self.waiting.min(wanted as u64));
        self.stream.receiver.consume(len);
        self.waiting -= len as u64;
    }

    fn grant(&mut self) {
        while let Some(post) = self.stream.grant() {
            assert!(post.has_imm && matches!(post.message, Message::Grant(_)));
            if let Bytes::Segment(bytes) = &post.bytes {
                let half = self.sizes.recv_buffer / 2;
                self.lent += u64::from(half);
                let entry = post.to.0.wrapping_sub(self.peer.targets.addr);
                let entries = u64::from(self.peer.targets.length).max(2);
                assert!(entry + Segment::LEN as u64 <= entries * Segment::LEN as u64);
                let is_native = cfg!(target_endian = "big") == self.peer.network_order;
                if is_native {
                    let lent = Segment::from_bytes(bytes);
                    let (addr, key) = MEMORY.recv_buffer;
                    assert_eq!((lent.key, lent.length), (key, half));
                    assert!([addr, addr + u64::from(half)].contains(&lent.addr), "{lent:?}");
                }
            }
            self.pending.push_back(post);
        }
    }

    /// Checks the limits that hold after each step.
    fn check(&mut self) {
        let size = u64::from(self.sizes.recv_buffer / 2 * 2);
        assert!(self.lent + self.waiting <= size, "{} + {} bytes", self.lent, self.waiting);
        let is_control =
            |post: &&Post| matches!(post.message, Message::Grant(_) | Message::Control(_));
        let controls = self.pending.iter().filter(is_control).count();
        assert!(controls <= CONTROLS as usize);
        let most = usize::from(self.sizes.send_queue).max(CONTROLS as usize);
        assert!(self.pending.len() <= most, "{} of {most} requests", self.pending.len());
        let rings: Vec<&Range<usize>> = (self.pending.iter())
            .filter_map(|post| match &post.bytes {
                Bytes::Stream(transfer) => transfer.ring.as_ref(),
                _ => None,
            })
            .flatten()
            .filter(|range| !range.is_empty())
            .collect();
        for (nr, range) in rings.iter().enumerate() {
            assert!(range.end <= self.sizes.send_buffer as usize, "{range:?}");
            let is_shared =
                |other: &&Range<usize>| range.start < other.end && other.start < range.end;
            assert!(!rings[..nr].iter().any(is_shared), "{range:?} is used twice");
        }
        let receives = self.stream.take_completed_receives();
        assert!(receives <= 1);
    }
}
