//! The last messages, in memory that the watcher reads without a lock.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use urxe_types::allocate;

/// The most bytes of a packet from the BTH to the ICRC: a MAD with its headers.
pub const LAST_PACKET_LEN: usize = 280;

/// The number of words of an encoded message.
const WORDS: usize = LAST_PACKET_LEN / 8 + 5;
/// Chunk n has `FIRST << n` records.
const CHUNKS: usize = 12;
const FIRST: usize = 64;

/// The message to a peer at the end of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastMessage {
    /// The source address, one of this host's.
    pub from: IpAddr,
    /// The destination address.
    pub to: IpAddr,
    /// The interface index of link-local addresses.
    pub scope_id: u32,
    /// The type of service or traffic class.
    pub traffic_class: u8,
    /// The packet from the BTH, with room for its ICRC.
    pub packet: [u8; LAST_PACKET_LEN],
    /// The number of bytes before the ICRC.
    pub len: usize,
}

/// The messages of a process by number. A record is written by one thread at a time, and read at
/// any time.
#[derive(Debug)]
pub struct Records {
    chunks: [OnceLock<Box<[Record]>>; CHUNKS],
}

/// A record. The generation is odd if there is a message, and changes whenever the message does.
#[derive(Debug)]
struct Record {
    generation: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl Default for Records {
    fn default() -> Self {
        Self { chunks: [const { OnceLock::new() }; CHUNKS] }
    }
}

impl Records {
    /// The number of records.
    pub const MAX: usize = FIRST * ((1 << CHUNKS) - 1);

    /// Sets or clears the message with this number. Only one thread at a time may change a number.
    /// Returns whether there was memory for the record.
    pub fn set(&self, number: usize, message: Option<&LastMessage>) -> bool {
        let Some(record) = self.record(number, message.is_some()) else { return false };
        record.set(message);
        true
    }

    /// Returns the messages.
    pub fn iter(&self) -> impl Iterator<Item = LastMessage> {
        let records = self.chunks.iter().filter_map(|chunk| chunk.get()).flatten();
        records.filter_map(Record::get)
    }

    /// Returns the record with this number. Allocates its chunk if `is_needed`.
    fn record(&self, number: usize, is_needed: bool) -> Option<&Record> {
        // With FIRST added, the highest bit is the number of the chunk.
        let position = number.checked_add(FIRST)?;
        let order = position.ilog2();
        let chunk = self.chunks.get((order - FIRST.ilog2()) as usize)?;
        let len = 1_usize << order;
        let records = match chunk.get() {
            Some(records) => records,
            None if is_needed => {
                let made = allocate::collected((0..len).map(|_| Record::empty())).ok()?;
                chunk.get_or_init(|| made.into_boxed_slice())
            }
            None => return None,
        };
        records.get(position - len)
    }
}

impl Record {
    fn empty() -> Self {
        Self { generation: AtomicU64::new(0), words: [const { AtomicU64::new(0) }; WORDS] }
    }

    fn set(&self, message: Option<&LastMessage>) {
        let generation = self.generation.load(Ordering::Relaxed).next_multiple_of(2);
        // A reader that finds an odd number before and after has read the words between.
        self.generation.store(generation, Ordering::Relaxed);
        fence(Ordering::Release);
        let Some(message) = message else { return };
        for (word, value) in self.words.iter().zip(encode(message)) {
            word.store(value, Ordering::Relaxed);
        }
        self.generation.store(generation.wrapping_add(1), Ordering::Release);
    }

    fn get(&self) -> Option<LastMessage> {
        let before = self.generation.load(Ordering::Acquire);
        if before.is_multiple_of(2) {
            return None;
        }
        let words = std::array::from_fn(|n| {
            self.words.get(n).map_or(0, |word| word.load(Ordering::Relaxed))
        });
        fence(Ordering::Acquire);
        (self.generation.load(Ordering::Relaxed) == before).then(|| decode(words))
    }
}

fn encode(message: &LastMessage) -> [u64; WORDS] {
    let LastMessage { from, to, scope_id, traffic_class, packet, len } = message;
    let mut words = [0; WORDS];
    let addresses = [from, to].map(|address| match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    });
    let numbers = u64::from(*scope_id) << 32 | u64::from(*traffic_class) << 16 | *len as u64;
    let bytes = packet.as_chunks().0.iter().chain(addresses.as_flattened().as_chunks().0);
    let values = bytes.map(|bytes| u64::from_ne_bytes(*bytes)).chain([numbers]);
    for (word, value) in words.iter_mut().zip(values) {
        *word = value;
    }
    words
}

fn decode(words: [u64; WORDS]) -> LastMessage {
    let mut bytes = [0; WORDS * 8];
    for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
        *bytes = word.to_ne_bytes();
    }
    let mut packet = [0; LAST_PACKET_LEN];
    let mut addresses = [[0; 16]; 2];
    let fields = packet.iter_mut().chain(addresses.as_flattened_mut());
    fields.zip(bytes).for_each(|(field, byte)| *field = byte);
    let [from, to] = addresses.map(|octets| IpAddr::V6(Ipv6Addr::from(octets)).to_canonical());
    let numbers = words.last().copied().unwrap_or_default();
    LastMessage {
        from,
        to,
        scope_id: (numbers >> 32) as u32,
        traffic_class: (numbers >> 16) as u8,
        packet,
        len: usize::from(numbers as u16),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn message(byte: u8) -> LastMessage {
        LastMessage {
            from: IpAddr::from([127, 0, 0, byte]),
            to: "fe80::7".parse().unwrap(),
            scope_id: 0x8000_0001 | u32::from(byte),
            traffic_class: byte,
            packet: std::array::from_fn(|n| (n as u8).wrapping_mul(byte)),
            len: 276,
        }
    }

    #[test]
    fn a_message_comes_back_as_it_was() {
        for one in [message(1), message(200)] {
            assert_eq!(decode(encode(&one)), one);
        }
    }

    #[test]
    fn each_number_has_a_record_of_its_own() {
        let records = Records::default();
        let numbers = [0, 1, 63, 64, 191, 192, 1000];
        for (number, byte) in numbers.into_iter().zip(1..) {
            assert!(records.set(number, Some(&message(byte))));
        }
        let found: Vec<_> = records.iter().collect();
        assert_eq!(found, (1..=7).map(message).collect::<Vec<_>>());
        assert!(records.set(63, None) && records.set(64, Some(&message(9))));
        let found: Vec<_> = records.iter().map(|one| one.traffic_class).collect();
        assert_eq!(found, [1, 2, 9, 5, 6, 7]);
    }

    #[test]
    fn records_without_memory_or_number_are_refused() {
        let records = Records::default();
        assert!(!records.set(3, None), "nothing to clear");
        assert!(!records.set(Records::MAX, Some(&message(1))));
        assert_eq!(records.iter().next(), None);
    }
}
