//! Generated files of every format and byte order: complete, truncated and damaged.

use proptest::prelude::*;

use super::*;

/// A record in the form that the tests compare: time, link type, bytes, original length.
type Seen = (Option<u128>, u32, Vec<u8>, u32);

/// Reads up to the end or the first error.
fn read(file: &[u8]) -> (Vec<Seen>, Option<CaptureError>) {
    read_from(file)
}

fn read_from(source: impl Read) -> (Vec<Seen>, Option<CaptureError>) {
    let mut seen = Vec::new();
    let mut reader = match Reader::new(source) {
        Ok(reader) => reader,
        Err(error) => return (seen, Some(error)),
    };
    loop {
        match reader.next_record() {
            Ok(Some(r)) => seen.push((r.time_ns, r.link_type, r.bytes.to_vec(), r.original_len)),
            Ok(None) => return (seen, None),
            Err(error) => return (seen, Some(error)),
        }
    }
}

/// A byte order.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    Little,
    Big,
}

impl Order {
    fn u16(self, value: u16) -> [u8; 2] {
        if self == Self::Little { value.to_le_bytes() } else { value.to_be_bytes() }
    }

    fn u32(self, value: u32) -> [u8; 4] {
        if self == Self::Little { value.to_le_bytes() } else { value.to_be_bytes() }
    }

    fn u64(self, value: u64) -> [u8; 8] {
        if self == Self::Little { value.to_le_bytes() } else { value.to_be_bytes() }
    }

    /// Returns a classic file with one record per packet, a second apart.
    fn classic(self, magic: u32, packets: &[&[u8]]) -> Vec<u8> {
        let mut file = Vec::new();
        file.extend(self.u32(magic));
        file.extend(self.u16(2));
        file.extend(self.u16(4));
        for word in [0, 0, 262_144, 1] {
            file.extend(self.u32(word));
        }
        for (second, packet) in packets.iter().enumerate() {
            for word in [second as u32, 5, packet.len() as u32, packet.len() as u32 + 10] {
                file.extend(self.u32(word));
            }
            file.extend_from_slice(packet);
        }
        file
    }

    /// Returns a pcapng block.
    fn block(self, block_type: u32, body: &[u8]) -> Vec<u8> {
        let padded = body.len().next_multiple_of(4);
        let len = self.u32(padded as u32 + 12);
        let mut block = Vec::new();
        block.extend(self.u32(block_type));
        block.extend(len);
        block.extend_from_slice(body);
        block.resize(8 + padded, 0);
        block.extend(len);
        block
    }

    fn section(self) -> Vec<u8> {
        let mut body = self.u32(0x1a2b_3c4d).to_vec();
        body.extend(self.u16(1));
        body.extend(self.u16(0));
        body.extend([0xff; 8]);
        self.block(0x0a0d_0d0a, &body)
    }

    /// Returns an interface of `link_type` with options.
    fn interface(self, link_type: u16, snap_len: u32, options: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = self.u16(link_type).to_vec();
        body.extend(self.u16(0));
        body.extend(self.u32(snap_len));
        for (code, value) in options {
            body.extend(self.u16(*code));
            body.extend(self.u16(value.len() as u16));
            body.extend_from_slice(value);
            body.resize(body.len().next_multiple_of(4), 0);
        }
        self.block(1, &body)
    }

    fn enhanced(self, interface: u32, ticks: u64, original_len: u32, packet: &[u8]) -> Vec<u8> {
        let mut body = self.u32(interface).to_vec();
        body.extend(self.u32((ticks >> 32) as u32));
        body.extend(self.u32(ticks as u32));
        body.extend(self.u32(packet.len() as u32));
        body.extend(self.u32(original_len));
        body.extend_from_slice(packet);
        self.block(6, &body)
    }

    fn simple(self, original_len: u32, packet: &[u8]) -> Vec<u8> {
        let mut body = self.u32(original_len).to_vec();
        body.extend_from_slice(packet);
        self.block(3, &body)
    }
}

const ORDERS: [Order; 2] = [Order::Little, Order::Big];

/// Returns a pcapng file with two interfaces, packets of all kinds and a block of unknown type.
fn ng(order: Order) -> Vec<u8> {
    [
        order.section(),
        order.interface(1, 0, &[(9, &[9]), (2, b"eth0")]),
        order.interface(101, 0, &[(9, &[0x8a]), (14, &order.u64(100))]),
        order.enhanced(0, 1_500_000_000_000_000_123, 60, &[1; 5]),
        order.block(0x7777, &[9; 20]),
        order.enhanced(1, 512, 3, &[2; 3]),
        order.simple(4, &[3; 4]),
    ]
    .concat()
}

fn ng_seen() -> Vec<Seen> {
    vec![
        (Some(1_500_000_000_000_000_123), 1, vec![1; 5], 60),
        (Some(100_500_000_000), 101, vec![2; 3], 3),
        (None, 1, vec![3; 4], 4),
    ]
}

#[test]
fn classic_files_of_every_magic() {
    for order in ORDERS {
        for (magic, fraction_ns) in [(0xa1b2_c3d4, 5_000), (0xa1b2_3c4d, 5)] {
            let (seen, error) = read(&order.classic(magic, &[b"one", b"three"]));
            assert!(error.is_none(), "{error:?}");
            assert_eq!(
                seen,
                [
                    (Some(fraction_ns), 1, b"one".to_vec(), 13),
                    (Some(1_000_000_000 + fraction_ns), 1, b"three".to_vec(), 15)
                ]
            );
        }
    }
}

#[test]
fn pcapng_files_of_both_orders() {
    for order in ORDERS {
        let (seen, error) = read(&ng(order));
        assert!(error.is_none(), "{error:?}");
        assert_eq!(seen, ng_seen());
    }
}

#[test]
fn sections_of_different_orders_follow_each_other() {
    let file = [ng(Order::Little), ng(Order::Big)].concat();
    let (seen, error) = read(&file);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(seen, [ng_seen(), ng_seen()].concat());
}

/// A source that returns one byte for each read, like a slow pipe.
struct Trickle<'a>(&'a [u8]);

impl Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.0.len().min(1).min(buffer.len());
        buffer[..len].copy_from_slice(&self.0[..len]);
        self.0 = &self.0[len..];
        Ok(len)
    }
}

#[test]
fn a_slow_pipe_is_as_good_as_a_file() {
    assert_eq!(read_from(Trickle(&ng(Order::Big))).0, ng_seen());
}

#[test]
fn a_simple_packet_is_as_long_as_the_snap_length() {
    let order = Order::Little;
    let file = [order.section(), order.interface(1, 2, &[]), order.simple(100, &[3; 4])].concat();
    assert_eq!(read(&file).0, [(None, 1, vec![3; 2], 100)]);
}

#[test]
fn times_that_are_none() {
    let order = Order::Little;
    for resolution in [0x7f, 0x8f] {
        let negative = order.u64(i64::MIN as u64);
        let options: [(u16, &[u8]); 2] = [(9, &[resolution]), (14, &negative)];
        let file = [
            order.section(),
            order.interface(1, 0, &options),
            order.enhanced(0, u64::MAX, 1, &[1]),
        ]
        .concat();
        assert_eq!(read(&file).0[0].0, None, "resolution {resolution:#x}");
    }
}

#[test]
fn a_truncated_file_returns_the_packets_before() {
    for file in [ng(Order::Little), Order::Big.classic(0xa1b2_c3d4, &[b"one", b"three"])] {
        let whole = read(&file).0;
        for len in 1..file.len() {
            let (seen, error) = read(&file[..len]);
            assert!(whole.starts_with(&seen), "cut at {len}");
            match error {
                Some(CaptureError::Truncated { offset, have }) => {
                    assert_eq!(offset + have as u64, len as u64, "cut at {len}");
                }
                None => assert!(seen.len() <= whole.len()),
                other => panic!("cut at {len}: {other:?}"),
            }
        }
    }
}

#[test]
fn damage_is_named_with_its_place() {
    let order = Order::Little;
    let mut long = order.classic(0xa1b2_c3d4, &[b"one"]);
    long[24 + 8..24 + 12].fill(0xff);
    let mut short = [order.section(), order.block(0x7777, &[])].concat();
    let at = order.section().len() + 4;
    short[at..at + 4].fill(0);
    let unknown =
        [order.section(), order.interface(1, 0, &[]), order.enhanced(7, 0, 1, &[1])].concat();
    for (file, expected) in [
        (&b""[..], "the file is empty; a capture has at least a file header"),
        (b"abc", "the capture is cut short: the block at byte 0 has only 3 bytes"),
        (
            b"#!/bin/sh\nexit 0\n# and much more text",
            "not a capture: the file begins with the bytes [23, 21, 2f, 62]; \
             supported are pcap and pcapng",
        ),
        (&long, "the capture is damaged: the block at byte 24 has a length over 16777216 bytes"),
        (&short, "the capture is damaged: the block at byte 28 violates the format"),
        (
            &unknown,
            "the capture is damaged: the packet at byte 48 names interface 7, \
             of 1 described before",
        ),
        (
            &[order.section(), order.simple(1, &[1])].concat(),
            "the capture is damaged: the packet at byte 28 names interface 0, \
             of 0 described before",
        ),
    ] {
        assert_eq!(read(file).1.unwrap().to_string(), expected);
    }
}

#[test]
fn a_read_error_is_reported() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::PermissionDenied.into())
        }
    }
    assert!(matches!(read_from(Broken).1, Some(CaptureError::Read { offset: 0, .. })));
}

proptest! {
    #[test]
    fn damaged_files_end_with_an_error_or_not_at_all(
        which in 0..4usize,
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut file = match which {
            0 => ng(Order::Little),
            1 => ng(Order::Big),
            2 => Order::Little.classic(0xa1b2_c3d4, &[b"one", b"three"]),
            _ => Order::Big.classic(0xa1b2_cd34, &[b"one", b"three"]),
        };
        for (at, value) in damage {
            let at = at.index(file.len());
            file[at] = value;
        }
        let (seen, _) = read(&file);
        let given: usize = seen.iter().map(|(_, _, bytes, _)| bytes.len()).sum();
        prop_assert!(given <= file.len());
    }

    #[test]
    fn any_bytes_behind_a_section_header(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (seen, _) = read(&[Order::Little.section(), bytes].concat());
        prop_assert!(seen.is_empty(), "no interface was described");
    }
}
