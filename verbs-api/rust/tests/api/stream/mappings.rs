//! Memory that one end maps and the other writes: every byte arrives, calls outside of mappings
//! fail and change nothing, and dropped mappings are gone.

use std::io::{ErrorKind, Read, Write};
use std::thread;

use smol::io::{AsyncReadExt as _, AsyncWriteExt as _};
use urxe::stream::{IoMapping, MapError, RdmaStream, StreamError};
use urxe::{Access, MemoryRegion};

use super::{bytes, client, pair_of, reason};
use crate::cm::{address, device};
use crate::common::LONG;

/// More than the send buffer has.
const LARGE: u64 = 1 << 20;
const WRITTEN: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE);

/// Returns both ends of a stream, of which each accepts so many mappings, the listening end first.
fn mapping_pair(net: u8, [listening, connecting]: [u16; 2]) -> [RdmaStream; 2] {
    let builder = RdmaStream::builder().device(&device(net, 1)).peer_mappings(listening);
    let listener = builder.bind((address(net, 1), 0).into()).unwrap();
    pair_of(&listener, client(net).peer_mappings(connecting))
}

/// Returns a region that the peer may write.
fn region(stream: &RdmaStream, len: usize) -> MemoryRegion {
    stream.pd().allocate(len, WRITTEN).unwrap()
}

/// Sends one byte, which the peer reads. It then knows what this end has mapped and dropped.
#[track_caller]
fn say(from: &RdmaStream, to: &RdmaStream) {
    let limit = LONG.unwrap();
    from.blocking().timeout(limit).write_all(b".").unwrap();
    to.blocking().timeout(limit).read_exact(&mut [0]).unwrap();
}

/// Returns the reason why a call at `offset` is refused.
#[track_caller]
fn refused(stream: &RdmaStream, offset: u64, bytes: &[u8]) -> StreamError {
    let error = stream.blocking().timeout(LONG.unwrap()).write_at(offset, bytes).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported), "{error:?}");
    reason(&error)
}

/// Maps memory for the peer, and writes all but the last byte of the peer's.
async fn write_all_but_the_last_byte(mut stream: RdmaStream) {
    let mapping = stream.map(region(&stream, LARGE as usize)).unwrap();
    assert_eq!((mapping.offset(), mapping.len()), (0, LARGE as usize));
    stream.write_all(b"mapped").await.unwrap();
    stream.read_exact(&mut [0; 6]).await.unwrap();
    // The first bytes are inline.
    stream.write_at(0, &bytes(0..50)).await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    writer.write_at(50, &bytes(50..LARGE - 1)).await.unwrap();
    writer.close().await.unwrap();
    // The end of the peer's stream comes after its writes.
    assert_eq!(reader.read(&mut [0]).await.unwrap(), 0);
    assert!(mapping.read_vec(0, LARGE as usize - 1).unwrap() == bytes(0..LARGE - 1));
    assert_eq!(mapping.load_u8(LARGE as usize - 1), Ok(0));
}

#[test]
fn both_ends_write_mapped_memory_of_the_other() {
    let ends = mapping_pair(150, [1, 1]);
    let tasks = ends.map(|end| thread::spawn(|| smol::block_on(write_all_but_the_last_byte(end))));
    for task in tasks {
        task.join().unwrap();
    }
}

#[test]
fn each_mapping_has_its_own_offsets() {
    let [owner, writer] = mapping_pair(151, [0, 3]);
    let high = owner.map_at(region(&owner, 100), 1 << 40).unwrap();
    let next = owner.map(region(&owner, 100)).unwrap();
    let low = owner.map_at(region(&owner, 100), 7).unwrap();
    assert_eq!([&high, &next, &low].map(IoMapping::offset), [1 << 40, (1 << 40) + 100, 7]);
    say(&owner, &writer);
    writer.blocking().write_at((1 << 40) + 99, b"a").unwrap();
    writer.blocking().write_at((1 << 40) + 100, b"b").unwrap();
    writer.blocking().write_at(7, b"c").unwrap();
    say(&writer, &owner);
    assert_eq!(high.read_vec(98, 2).unwrap(), b"\0a");
    assert_eq!(next.read_vec(0, 2).unwrap(), b"b\0");
    assert_eq!(low.read_vec(0, 2).unwrap(), b"c\0");
}

#[test]
fn a_write_outside_of_the_mappings_is_refused_and_writes_nothing() {
    let [owner, writer] = mapping_pair(152, [0, 2]);
    let peer = writer.peer_addr();
    assert_eq!(refused(&writer, 0, b"x"), StreamError::NotMapped { peer, offset: 0 });
    let mapping = owner.map_at(region(&owner, 100), 1000).unwrap();
    // The mapping behind it is another one.
    let behind = owner.map(region(&owner, 100)).unwrap();
    say(&owner, &writer);
    for offset in [999, 1200, u64::MAX] {
        assert_eq!(refused(&writer, offset, b"x"), StreamError::NotMapped { peer, offset });
    }
    let beyond = StreamError::OutsideMapping { peer, offset: 1098, len: 3, mapped: 2 };
    assert_eq!(refused(&writer, 1098, b"xxx"), beyond);
    // The end that maps accepts no mappings.
    assert_eq!(refused(&owner, 1000, b"x"), StreamError::NoPeerMappings);
    // Nothing happened, and the stream is as before.
    writer.blocking().write_at(1098, b"yy").unwrap();
    writer.blocking().write_at(0, b"").unwrap();
    say(&writer, &owner);
    assert_eq!(mapping.read_vec(96, 4).unwrap(), b"\0\0yy");
    assert_eq!(behind.read_vec(0, 100).unwrap(), [0; 100]);
}

#[test]
fn memory_that_cannot_be_mapped_is_refused() {
    let [owner, writer] = mapping_pair(153, [0, 2]);
    let peer = owner.peer_addr();
    let map = |region| owner.map(region).unwrap_err();
    let none = MapError::NoneAccepted { peer: writer.peer_addr() };
    assert_eq!(writer.map(region(&writer, 1)).unwrap_err(), none);
    // Domains of this device and of another one.
    for pd in [owner.pd().device().alloc_pd().unwrap(), writer.pd().clone()] {
        assert_eq!(map(pd.allocate(1, WRITTEN).unwrap()), MapError::OtherDomain);
    }
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
    let readable = owner.pd().allocate(1, access).unwrap();
    assert_eq!(map(readable), MapError::NotWritable { access });
    let long = owner.pd().allocate(1 << 32, WRITTEN | Access::ON_DEMAND).unwrap();
    assert_eq!(map(long), MapError::TooLong { len: 1 << 32 });
    let (offset, len) = (u64::MAX, 1);
    let beyond = owner.map_at(region(&owner, len), offset).unwrap_err();
    assert_eq!(beyond, MapError::OutOfRange { offset, len });

    let first = owner.map_at(region(&owner, 100), 1000).unwrap();
    for offset in [901, 1000, 1099] {
        let overlaps = MapError::Overlaps { offset, len: 100, other: 1000 };
        assert_eq!(owner.map_at(region(&owner, 100), offset).unwrap_err(), overlaps);
    }
    let second = owner.map_at(region(&owner, 100), 900).unwrap();
    assert_eq!(map(region(&owner, 1)), MapError::Full { peer, allowed: 2 });
    drop(first);
    // The last mapping ends at offset 1000 again.
    assert_eq!(owner.map(region(&owner, 1)).unwrap().offset(), 1000);
    drop(second);

    owner.blocking().shutdown().unwrap();
    let error = map(region(&owner, 1));
    assert_eq!(error, MapError::Stream(StreamError::ShutDown));
    assert_eq!(std::io::Error::from(error).kind(), ErrorKind::BrokenPipe);
}

#[test]
fn a_peer_learns_that_a_mapping_is_dropped() {
    let [owner, writer] = mapping_pair(154, [0, 2]);
    let peer = writer.peer_addr();
    let first = owner.map_at(region(&owner, 100), 0).unwrap();
    let second = owner.map_at(region(&owner, 100), 1000).unwrap();
    say(&owner, &writer);
    drop(first);
    say(&owner, &writer);
    assert_eq!(refused(&writer, 0, b"x"), StreamError::NotMapped { peer, offset: 0 });
    // The next mapping has the entry of the first.
    let third = owner.map_at(region(&owner, 100), 50).unwrap();
    say(&owner, &writer);
    writer.blocking().write_at(50, b"third").unwrap();
    writer.blocking().write_at(1000, b"second").unwrap();
    say(&writer, &owner);
    assert_eq!(third.read_vec(0, 5).unwrap(), b"third");
    assert_eq!(second.read_vec(0, 6).unwrap(), b"second");
    // A mapping outlives the stream.
    drop(owner);
    assert_eq!(second.read_vec(0, 6).unwrap(), b"second");
}

/// The messages about mappings use the credits of the stream, of which there are 384.
#[test]
fn a_stream_can_map_and_drop_thousands_of_times() {
    let [owner, writer] = mapping_pair(155, [0, 1]);
    for round in 0..600_u16 {
        let mapping = owner.map(region(&owner, 64)).unwrap();
        say(&owner, &writer);
        writer.blocking().write_at(0, &round.to_le_bytes()).unwrap();
        say(&writer, &owner);
        assert_eq!(mapping.read_vec(0, 2).unwrap(), round.to_le_bytes());
        drop(mapping);
        say(&owner, &writer);
    }
}
