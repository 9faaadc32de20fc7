//! Peers that violate the protocol: the stream ends with an error, and uses no more memory.

use std::io::{ErrorKind, Read, Write};
use std::thread;
use std::time::Duration;

use urxe::cm::{self, Connection, Options};
use urxe::stream::{RdmaStream, StreamError};
use urxe::{Access, Data, Gather, MemoryRegion, QpState, RecvRequest, Remote, Rkey, SendRequest};
use urxe_rsocket::protocol::connect::{ConnData, VERSION};
use urxe_rsocket::protocol::message::{Control, Message};
use urxe_rsocket::protocol::segment::{Iomap, Segment};

use super::ends::assert_all_calls_fail;
use super::{bytes, eventually, reason};
use crate::cm::{address, device};
use crate::common::LONG;

/// A peer that sends what the test wants.
struct Peer {
    connection: Connection,
    /// The private data of the stream.
    lent: ConnData,
    /// The memory that the peer lends.
    memory: MemoryRegion,
}

/// The private data of a peer, with the memory that it lends.
type Offer = fn(&MemoryRegion) -> ConnData;

fn usual(memory: &MemoryRegion) -> ConnData {
    let segment = |addr: u64, length| Segment { addr, key: memory.rkey().0, length };
    ConnData {
        version: VERSION,
        network_order: cfg!(target_endian = "big"),
        has_iomaps: true,
        credits: 100,
        iomaps: 2,
        targets: segment(0, 2),
        first_target: segment(4096, 64 << 10),
    }
}

impl Peer {
    fn new(net: u8, offer: Offer) -> (RdmaStream, Self) {
        let builder = RdmaStream::builder().device(&device(net, 1)).peer_mappings(2);
        let listener = builder.bind((address(net, 1), 0).into()).unwrap();
        let pd = device(net, 2).alloc_pd().unwrap();
        let written = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let memory = pd.allocate(128 << 10, written).unwrap();
        let private_data = offer(&memory).to_bytes();
        let options = Options::new().pd(&pd).private_data(&private_data).max_send_wr(1000);
        let options = options.max_recv_wr(1000);
        let pending = cm::prepare(listener.local_addr(), &options).unwrap();
        for _ in 0..500 {
            pending.qp().post_recv(&RecvRequest::new(Gather::EMPTY)).unwrap();
        }
        let connecting = thread::spawn(|| pending.establish().unwrap());
        let (stream, _) = listener.wait(LONG).unwrap();
        let connection = connecting.join().unwrap();
        let lent = ConnData::parse(&connection.peer_private_data()).unwrap();
        (stream, Self { connection, lent, memory })
    }

    /// Writes into memory of the stream, with a message.
    fn write(&self, at: Segment, data: &[u8], message: Message) {
        let remote = Remote { addr: at.addr, rkey: Rkey(at.key) };
        let write = SendRequest::write_imm(Data::inline(data), remote, message.to_bits());
        self.connection.qp().post_send(&write).unwrap();
    }

    fn say(&self, message: Message) {
        self.write(Segment::default(), b"", message);
    }

    /// Returns whether the stream has disconnected this peer.
    fn is_disconnected(&self) -> bool {
        self.connection.qp().state() == QpState::Err
    }
}

/// Reads until the stream ends, and returns the bytes and the error.
#[track_caller]
fn read_to_error(stream: &RdmaStream) -> (Vec<u8>, StreamError) {
    let mut read = Vec::new();
    let mut blocking = stream.blocking().timeout(LONG.unwrap());
    let error = blocking.read_to_end(&mut read).unwrap_err();
    (read, reason(&error))
}

/// Plays a peer, which must be disconnected for a violation. The bytes before it are read.
#[track_caller]
fn violates(net: u8, before: &[u8], play: impl Fn(&Peer)) {
    let (stream, peer) = Peer::new(net, usual);
    play(&peer);
    let (read, error) = read_to_error(&stream);
    assert_eq!(error, StreamError::Violation { peer: stream.peer_addr() });
    assert_eq!(read, before);
    eventually(|| peer.is_disconnected());
    assert_all_calls_fail(&stream, error);
}

#[test]
fn more_bytes_than_were_lent_are_a_violation() {
    violates(130, b"bytes", |peer| {
        peer.write(peer.lent.first_target, b"bytes", Message::Data(5));
        peer.say(Message::Data(1 << 28));
    });
}

#[test]
fn more_messages_than_were_allowed_are_a_violation() {
    let (stream, peer) = Peer::new(131, usual);
    (0..600).for_each(|_| peer.say(Message::Data(0)));
    // The program reads nothing, so no message makes room for others.
    let mut error = None;
    eventually(|| {
        error = stream.blocking().flush().err();
        error.is_some()
    });
    let error = reason(&error.unwrap());
    assert_eq!(error, StreamError::Violation { peer: stream.peer_addr() });
    eventually(|| peer.is_disconnected());
}

#[test]
fn a_message_that_no_version_defines_is_a_violation() {
    violates(132, b"", |peer| peer.say(Message::Reserved(1 << 29)));
}

#[test]
fn a_message_without_immediate_data_is_a_violation() {
    violates(133, b"", |peer| {
        peer.connection.qp().post_send(&SendRequest::send(Data::EMPTY)).unwrap();
    });
}

/// An empty message is not the end of the stream.
#[test]
fn empty_messages_are_skipped() {
    let (mut stream, peer) = Peer::new(134, usual);
    (0..10).for_each(|_| peer.say(Message::Data(0)));
    peer.write(peer.lent.first_target, b"x", Message::Data(1));
    let mut byte = [0];
    assert_eq!(pollster::block_on(stream.peek(&mut byte)).unwrap(), 1);
    (0..10).for_each(|_| peer.say(Message::Data(0)));
    peer.say(Message::Control(Control::Shutdown));
    let mut read = Vec::new();
    stream.blocking().timeout(LONG.unwrap()).read_to_end(&mut read).unwrap();
    assert_eq!(read, b"x");
}

/// The peer disconnects without the end of its stream.
#[test]
fn a_connection_that_ends_early_is_no_end_of_the_stream() {
    let (stream, peer) = Peer::new(135, usual);
    peer.write(peer.lent.first_target, b"half of", Message::Data(7));
    // The bytes are acknowledged.
    pollster::block_on(peer.connection.close()).unwrap();
    let (read, error) = read_to_error(&stream);
    assert_eq!(read, b"half of");
    assert_eq!(error, StreamError::Reset { peer: stream.peer_addr() });
    let error = stream.blocking().write(b"more").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

/// A WRITE outside the lent memory fails, and ends the stream.
#[test]
fn memory_that_was_not_lent_stays_unchanged() {
    let (stream, peer) = Peer::new(136, usual);
    let beyond = Segment { addr: 1 << 30, ..peer.lent.first_target };
    peer.write(beyond, b"x", Message::Data(1));
    let (read, error) = read_to_error(&stream);
    assert!(read.is_empty());
    assert_eq!(error, StreamError::Reset { peer: stream.peer_addr() });
}

/// A peer that lends memory that does not exist gets none of the bytes.
#[test]
fn memory_that_the_peer_does_not_have_ends_the_stream() {
    let wild: Offer = |memory| ConnData {
        first_target: Segment { addr: 1 << 40, key: 99, length: u32::MAX },
        ..usual(memory)
    };
    let (stream, _peer) = Peer::new(137, wild);
    stream.blocking().write_all(&bytes(0..100)).unwrap();
    let error = stream.blocking().shutdown().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
    assert!(matches!(reason(&error), StreamError::Lost { .. }), "{error}");
}

/// A peer without credits, and one that lends no memory, stop the writer. It may give up.
#[test]
fn a_peer_that_allows_nothing_stops_the_writer() {
    let none: [Offer; 2] = [
        |memory| ConnData { credits: 0, ..usual(memory) },
        |memory| ConnData { first_target: Segment::default(), ..usual(memory) },
    ];
    for (net, offer) in (138..).zip(none) {
        let (stream, peer) = Peer::new(net, offer);
        let mut blocking = stream.blocking().timeout(Duration::from_millis(50));
        assert_eq!(blocking.write(b"x").unwrap_err().kind(), ErrorKind::TimedOut);
        // A grant with both lets it go on.
        let half = Segment { addr: 8192, key: peer.memory.rkey().0, length: 1000 };
        let list = peer.lent.targets;
        peer.write(list, &half.to_bytes(Default::default()), Message::Grant(100));
        stream.blocking().timeout(LONG.unwrap()).write_all(b"granted").unwrap();
        stream.blocking().shutdown().unwrap();
        let at = if peer.memory.read_vec(8192, 7).unwrap() == b"granted" { 8192 } else { 4096 };
        assert_eq!(peer.memory.read_vec(at, 7).unwrap(), b"granted");
    }
}

/// Grants of any numbers and of any memory.
#[test]
fn senseless_grants_do_no_harm() {
    let (stream, peer) = Peer::new(140, usual);
    let wild = Segment { addr: u64::MAX - 3, key: 1, length: u32::MAX };
    for credits in [0, 1, 0x7fff, 0x8000, 0xffff, 50] {
        peer.write(peer.lent.targets, &wild.to_bytes(Default::default()), Message::Grant(credits));
    }
    // The first target is that of the private data.
    stream.blocking().write_all(b"first").unwrap();
    stream.blocking().timeout(LONG.unwrap()).shutdown().unwrap();
    eventually(|| peer.memory.read_vec(4096, 5).unwrap() == b"first");
}

/// The private data lend the first half of the receive buffer.
#[test]
fn the_second_half_of_the_receive_buffer_is_lent_before_the_first_read() {
    let (_stream, peer) = Peer::new(141, usual);
    let lent = || {
        // The first entry of the list is that of the private data.
        let bytes = peer.memory.read_vec(Segment::LEN, Segment::LEN).unwrap();
        Segment::from_bytes(&bytes.try_into().unwrap())
    };
    eventually(|| lent().length > 0);
    let first = peer.lent.first_target;
    assert_eq!(lent(), Segment { addr: first.addr + u64::from(first.length), ..first });
}

/// The peer reads the first bytes while this end copies the others.
#[test]
fn the_messages_of_a_long_write_become_longer() {
    let (stream, peer) = Peer::new(142, usual);
    stream.blocking().write_all(&bytes(0..60_000)).unwrap();
    stream.blocking().shutdown().unwrap();
    let messages = std::iter::from_fn(|| {
        let received = peer.connection.recv_cq().wait_one(LONG).unwrap();
        match Message::from_bits(received.imm_data().unwrap()) {
            Message::Data(len) => Some(Some(len)),
            Message::Grant(_) => Some(None),
            _ => None,
        }
    });
    let lengths: Vec<u32> = messages.flatten().collect();
    assert_eq!(lengths, [2048, 4096, 8192, 16_384, 29_280]);
    assert_eq!(peer.memory.read_vec(4096, 60_000).unwrap(), bytes(0..60_000));
}

/// Returns the first mapping of the stream, which the peer has received.
fn mapped(peer: &Peer) -> Segment {
    let mut iomap = Iomap::default();
    eventually(|| {
        let entry = peer.memory.read_vec(2 * Segment::LEN, Iomap::LEN).unwrap();
        iomap = Iomap::from_bytes(entry[..].try_into().unwrap());
        iomap.memory.length > 0
    });
    iomap.memory
}

/// The bytes inside of the mapping stay unchanged, too.
#[test]
fn a_peer_cannot_write_beyond_a_mapping() {
    let (stream, peer) = Peer::new(156, usual);
    let written = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let mapping = stream.map(stream.pd().allocate(100, written).unwrap()).unwrap();
    let segment = mapped(&peer);
    assert_eq!(segment.length, 100);
    let end = Segment { addr: segment.addr + 95, ..segment };
    peer.write(end, b"inside", Message::Data(0));
    let (_, error) = read_to_error(&stream);
    assert_eq!(error, StreamError::Reset { peer: stream.peer_addr() });
    assert_eq!(mapping.read_vec(0, 100).unwrap(), [0; 100]);
}

#[test]
fn a_peer_cannot_write_a_dropped_mapping() {
    let (stream, peer) = Peer::new(157, usual);
    let written = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let mapping = stream.map(stream.pd().allocate(100, written).unwrap()).unwrap();
    let segment = mapped(&peer);
    peer.write(segment, b"before", Message::Data(0));
    eventually(|| mapping.read_vec(0, 6).unwrap() == b"before");
    drop(mapping);
    peer.write(segment, b"after", Message::Data(0));
    let (_, error) = read_to_error(&stream);
    assert_eq!(error, StreamError::Reset { peer: stream.peer_addr() });
}

/// A peer that maps memory that does not exist gets none of the bytes.
#[test]
fn a_mapping_that_the_peer_does_not_have_ends_the_stream() {
    let (stream, peer) = Peer::new(158, usual);
    let memory = Segment { addr: 1 << 40, key: 99, length: u32::MAX };
    let wild = Iomap { offset: u64::MAX - 9, memory };
    let list = Segment { addr: peer.lent.targets.addr + 32, ..peer.lent.targets };
    peer.write(list, &wild.to_bytes(Default::default()), Message::Iomap(0));
    eventually(|| stream.blocking().write_at(u64::MAX - 9, &bytes(0..100)).is_ok());
    let error = stream.blocking().timeout(LONG.unwrap()).shutdown().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
    assert!(matches!(reason(&error), StreamError::Lost { .. }), "{error}");
}

/// The stream accepts two mappings.
#[test]
fn a_mapping_outside_of_the_list_is_ignored() {
    let (stream, peer) = Peer::new(159, usual);
    let wild = Iomap { offset: 0, memory: Segment { addr: 0, key: 1, length: 1 } };
    let list = Segment { addr: peer.lent.targets.addr + 32, ..peer.lent.targets };
    for index in [2, 3, u16::MAX] {
        peer.write(list, &wild.to_bytes(Default::default()), Message::Iomap(index));
    }
    peer.write(peer.lent.first_target, b"x", Message::Data(1));
    stream.blocking().timeout(LONG.unwrap()).read_exact(&mut [0]).unwrap();
    let error = stream.blocking().write_at(0, b"x").unwrap_err();
    let expected = StreamError::NotMapped { peer: stream.peer_addr(), offset: 0 };
    assert_eq!(reason(&error), expected);
}
