//! Two peers with their own memory, and the effects of a faulty peer.

use std::collections::VecDeque;
use std::net::Shutdown;

use proptest::prelude::*;

use crate::protocol::connect::ConnData;
use crate::protocol::message::{Control, Message};
use crate::protocol::segment::{Iomap, Segment, array};
use crate::protocol::sender::{LOW_WATER, TARGETS};
use crate::protocol::stream::{Bytes, ConnState, ListRead, LocalMemory, Post, Sizes, Stream};

/// Addresses and keys of each peer's list and receive buffer.
const MEMORY: LocalMemory = LocalMemory { list: (0x1000, 7), recv_buffer: (0x10_0000, 8) };

pub(super) const SMALL: Sizes = Sizes {
    send_queue: 16,
    recv_queue: 16,
    inline: 16,
    send_buffer: 4096,
    recv_buffer: 8192,
    iomaps: 3,
};

pub(super) struct End {
    pub(super) stream: Stream,
    sizes: Sizes,
    list: Vec<u8>,
    recv: Vec<u8>,
    ring: Vec<u8>,
    /// Pending work requests, with their inline bytes.
    pub(super) in_flight: VecDeque<(Post, Vec<u8>)>,
    /// The sent bytes of the stream, and the received ones.
    sent_bytes: Vec<u8>,
    received_bytes: Vec<u8>,
}

impl End {
    pub(super) fn pair(sizes: [Sizes; 2]) -> [Self; 2] {
        let sent_bytes = sizes.map(|sizes| Stream::conn_data(&sizes, &MEMORY));
        [End::new(sizes[0], &sent_bytes[1]), End::new(sizes[1], &sent_bytes[0])]
    }

    fn new(sizes: Sizes, peer: &ConnData) -> Self {
        Self {
            stream: Stream::new(sizes, MEMORY, peer).unwrap(),
            sizes,
            list: vec![0; sizes.list_len()],
            recv: vec![0; sizes.recv_buffer as usize],
            ring: vec![0; sizes.send_buffer as usize],
            in_flight: VecDeque::new(),
            sent_bytes: Vec::new(),
            received_bytes: Vec::new(),
        }
    }

    pub(super) fn grant(&mut self) {
        while let Some(post) = self.stream.grant() {
            self.in_flight.push_back((post, Vec::new()));
        }
    }

    /// Sends up to `wanted` bytes, if that is possible now.
    fn send(&mut self, wanted: u32) {
        if !self.stream.sender.is_ready() {
            return;
        }
        let post = self.stream.send(wanted);
        let Bytes::Stream(transfer) = &post.bytes else { panic!("{post:?}") };
        assert!(transfer.len > 0 && transfer.len <= wanted);
        let bytes: Vec<u8> =
            (0..transfer.len).map(|at| (self.sent_bytes.len() as u32 + at) as u8 ^ 0x5a).collect();
        let mut inline = Vec::new();
        match &transfer.ring {
            None => {
                assert!(transfer.len <= self.sizes.inline);
                inline.clone_from(&bytes);
            }
            Some([first, second]) => {
                let (at_first, at_second) = bytes.split_at(first.len());
                self.ring[first.clone()].copy_from_slice(at_first);
                self.ring[second.clone()].copy_from_slice(at_second);
            }
        }
        self.sent_bytes.extend_from_slice(&bytes);
        self.in_flight.push_back((post, inline));
    }

    /// Delivers one message to the peer.
    pub(super) fn deliver(&mut self, peer: &mut Self) {
        let Some((post, inline)) = self.in_flight.pop_front() else { return };
        let payload = match &post.bytes {
            Bytes::None => Vec::new(),
            Bytes::Segment(bytes) => bytes.to_vec(),
            Bytes::Iomap(bytes) => bytes.to_vec(),
            Bytes::Stream(transfer) => match &transfer.ring {
                None => inline,
                Some([first, second]) => {
                    [&self.ring[first.clone()], &self.ring[second.clone()]].concat()
                }
            },
        };
        if !payload.is_empty() {
            let (addr, key) = post.to;
            let (memory, start) = if key == MEMORY.list.1 {
                (&mut peer.list, MEMORY.list.0)
            } else {
                assert_eq!(key, MEMORY.recv_buffer.1);
                (&mut peer.recv, MEMORY.recv_buffer.0)
            };
            let at = (addr - start) as usize;
            memory[at..at + payload.len()].copy_from_slice(&payload);
        }
        if post.has_imm {
            match peer.stream.received(Some(post.message.to_bits())) {
                ListRead::Targets => peer.read_targets(),
                ListRead::Iomap(index) => peer.read_iomap(index),
                ListRead::None => {}
            }
        }
        self.stream.sent(post.message, true);
    }

    fn read_targets(&mut self) {
        read_targets(&mut self.stream, &mut self.list);
    }

    fn read_iomap(&mut self, index: u16) {
        let at = TARGETS * Segment::LEN + usize::from(index) * Iomap::LEN;
        self.stream.set_iomap(index, Iomap::from_bytes(&array(&self.list, at)));
    }

    /// Takes up to `wanted` bytes for the program.
    fn take(&mut self, wanted: usize) {
        let ranges = self.stream.receiver.readable(wanted);
        let mut taken = 0;
        for range in ranges {
            taken += range.len();
            self.received_bytes.extend_from_slice(&self.recv[range]);
        }
        self.stream.receiver.consume(taken);
    }
}

/// Reads the list that the peer writes, and marks the entries that were taken.
pub(super) fn read_targets(stream: &mut Stream, list: &mut [u8]) {
    let taken =
        stream.update_targets([0, Segment::LEN].map(|at| Segment::from_bytes(&array(list, at))));
    for (place, taken) in list.chunks_mut(Segment::LEN).zip(taken) {
        if taken {
            place.fill(0);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Send(u32),
    Deliver,
    Take(usize),
    Grant,
}

fn step() -> impl Strategy<Value = (bool, Step)> {
    let what = prop_oneof![
        4 => (1u32..6000).prop_map(Step::Send),
        6 => Just(Step::Deliver),
        4 => (1usize..9000).prop_map(Step::Take),
        4 => Just(Step::Grant),
    ];
    (any::<bool>(), what)
}

proptest! {
    /// For any order of operations, each peer receives the bytes that the other sent, and both can
    /// proceed at the end.
    #[test]
    fn what_is_said_is_heard(
        steps in prop::collection::vec(step(), 0..600),
        queues in (16u16..40, 16u16..40),
        halves in (1u32..6000, 1u32..6000),
    ) {
        let sizes = [
            Sizes { recv_queue: queues.0, recv_buffer: halves.0 * 2, ..SMALL },
            Sizes { recv_queue: queues.1, recv_buffer: halves.1 * 2, ..SMALL },
        ];
        let mut ends = End::pair(sizes);
        for (is_second, step) in steps {
            let [first, second] = &mut ends;
            let (own, peer) = if is_second { (second, first) } else { (first, second) };
            match step {
                Step::Send(bytes) => own.send(bytes),
                Step::Deliver => own.deliver(peer),
                Step::Take(bytes) => own.take(bytes),
                Step::Grant => own.grant(),
            }
            prop_assert!(own.stream.is_open() && peer.stream.is_open());
        }
        // After all messages are delivered and taken, both sides can send and receive.
        for _ in 0..4 {
            let [first, second] = &mut ends;
            for _ in 0..100 {
                first.grant();
                second.grant();
                first.deliver(second);
                second.deliver(first);
                first.take(usize::MAX);
                second.take(usize::MAX);
            }
            prop_assert!(first.stream.sender.is_ready() && second.stream.sender.is_ready());
            prop_assert!(first.stream.is_idle() && second.stream.is_idle());
            first.send(100);
            second.send(100);
        }
        let [mut first, mut second] = ends;
        first.deliver(&mut second);
        second.deliver(&mut first);
        first.take(usize::MAX);
        second.take(usize::MAX);
        prop_assert_eq!(&first.sent_bytes, &second.received_bytes);
        prop_assert_eq!(&second.sent_bytes, &first.received_bytes);
    }

    /// A peer may send any message: only its own connection is affected.
    #[test]
    fn a_peer_may_say_anything(words in prop::collection::vec(any::<u32>(), 0..100), targets: u32) {
        let mut peer = Stream::conn_data(&SMALL, &MEMORY);
        peer.targets.length = targets;
        let mut end = End::new(SMALL, &peer);
        for word in words {
            end.list.fill(word as u8);
            match end.stream.complete(u64::MAX, Some(word), true) {
                ListRead::Targets => end.read_targets(),
                ListRead::Iomap(index) => end.read_iomap(index),
                ListRead::None => {}
            }
            end.grant();
            end.send(word);
            end.take(word as usize);
            let _ = end.stream.send_to(100, word.into()).filter(|_| false);
        }
    }
}

#[test]
fn more_bytes_than_were_lent_end_the_connection() {
    for bytes in [SMALL.recv_buffer / 2 + 1, u32::MAX >> 3] {
        let [mut end, _] = End::pair([SMALL; 2]);
        end.stream.received(Some(Message::Data(bytes).to_bits()));
        assert_eq!(end.stream.state(), ConnState::Failed);
    }
    let [mut end, _] = End::pair([SMALL; 2]);
    for _ in 0..SMALL.recv_queue {
        end.stream.received(Some(Message::Data(1).to_bits()));
        assert!(end.stream.is_open());
    }
    end.stream.received(Some(Message::Data(1).to_bits()));
    assert_eq!(end.stream.state(), ConnState::Failed);
}

#[test]
fn a_sender_waits_for_room_credits_and_targets() {
    let [mut first, mut second] = End::pair([SMALL; 2]);
    first.send(SMALL.send_buffer - LOW_WATER + 1);
    assert!(!first.stream.sender.is_ready(), "less than the low water mark is left");
    first.deliver(&mut second);
    assert!(first.stream.sender.is_ready());
    // The two sends use up the first half; the second is not lent yet.
    first.send(LOW_WATER);
    first.deliver(&mut second);
    assert!(!first.stream.sender.is_ready());
    second.grant();
    second.deliver(&mut first);
    assert!(first.stream.sender.is_ready());
}

#[test]
fn ends_shut_one_direction_after_the_other() {
    let [mut first, mut second] = End::pair([SMALL; 2]);
    let control = first.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(control, Control::Shutdown);
    let post = first.stream.control(control).unwrap();
    first.in_flight.push_back((post, Vec::new()));
    first.deliver(&mut second);
    assert_eq!(second.stream.state(), ConnState::Open { readable: false, writable: true });
    second.send(500);
    second.deliver(&mut first);
    first.take(500);
    assert_eq!(first.received_bytes, second.sent_bytes);
    let control = second.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(control, Control::Disconnect);
    let post = second.stream.control(control).unwrap();
    second.in_flight.push_back((post, Vec::new()));
    second.deliver(&mut first);
    assert_eq!(
        (first.stream.state(), second.stream.state()),
        (ConnState::Disconnected, ConnState::Disconnected)
    );
}

#[test]
fn iomapped_memory_is_written_without_a_message() {
    let [mut first, mut second] = End::pair([SMALL; 2]);
    assert_eq!(first.stream.remote_iomaps(), 3);
    let iomap = Iomap { offset: 1 << 40, memory: Segment { addr: 0x7000, key: 9, length: 1000 } };
    let post = first.stream.map(2, iomap);
    first.in_flight.push_back((post, Vec::new()));
    first.deliver(&mut second);
    let post = second.stream.send_to(5000, (1 << 40) + 100).unwrap();
    let Bytes::Stream(transfer) = &post.bytes else { panic!("{post:?}") };
    assert_eq!((transfer.len, post.to, post.has_imm), (900, (0x7064, 9), false));
    assert_eq!(second.stream.send_to(1, (1 << 40) + 1000), None);
    assert_eq!(second.stream.send_to(1, (1 << 40) - 1), None);
}

#[test]
fn a_keepalive_is_a_write_of_nothing() {
    let [mut end, _] = End::pair([SMALL; 2]);
    for _ in 0..4 {
        let post = end.stream.control(Control::Keepalive).unwrap();
        assert_eq!((post.has_imm, post.bytes), (false, Bytes::None));
    }
    // Further controls must wait; each completion makes room.
    assert_eq!(end.stream.control(Control::Keepalive), None);
    end.stream.sent(Message::Control(Control::Keepalive), true);
    assert!(end.stream.control(Control::Keepalive).is_some());
    end.stream.sent(Message::Control(Control::Keepalive), false);
    assert_eq!(end.stream.state(), ConnState::Failed);
}
