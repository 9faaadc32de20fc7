//! Encoding and decoding of headers and words.

use std::net::SocketAddr;

use proptest::prelude::*;

use crate::protocol::connect::{ConnData, decode_iomaps, encode_iomaps};
use crate::protocol::datagram::{UdpHeader, UdpOp, header, parse_header};
use crate::protocol::message::{Control, Message, Work};
use crate::protocol::segment::{ByteOrder, Iomap, Segment};

#[test]
fn words_are_those_of_the_original() {
    for (message, bits) in [
        (Message::Data(1000), 0x0000_03e8),
        (Message::Write(5), 0x4000_0005),
        (Message::Grant(384), 0x8000_0180),
        (Message::Iomap(3), 0xc000_0003),
        (Message::Control(Control::Disconnect), 0xe000_0000),
        (Message::Control(Control::Keepalive), 0xe000_0001),
        (Message::Control(Control::Shutdown), 0xe000_0002),
    ] {
        assert_eq!(message.to_bits(), bits);
        assert_eq!(Message::from_bits(bits), message);
        assert_eq!(Work::of_id(message.work_id()), Work::Send(message));
    }
    assert_eq!(Work::of_id(Work::RECEIVE_ID), Work::Receive);
}

#[test]
fn numbers_of_iomappings_are_encoded_exactly_or_rounded_down() {
    for exact in [0, 1, 100, 128] {
        assert_eq!(decode_iomaps(encode_iomaps(exact)), exact);
    }
    for (given, understood) in [(300, 256), (1024, 1024), (1500, 1280), (0x7fff, 0x7f00)] {
        assert_eq!(decode_iomaps(encode_iomaps(given)), understood);
    }
}

#[test]
fn datagrams_name_their_sender() {
    for from in ["10.0.0.1:7174", "[fe80::7]:9"] {
        let from: SocketAddr = from.parse().unwrap();
        let mut bytes = header(from);
        let len = bytes.len();
        bytes.extend_from_slice(b"data");
        assert_eq!(parse_header(&bytes), Some((from, len)));
        assert_eq!(usize::from(bytes[1]), len);
        let said = UdpHeader { op: UdpOp::Data, qpn: 0x12_3456, from: from.ip() };
        let bytes = said.to_bytes();
        assert_eq!(UdpHeader::parse(&bytes), Some((said, bytes.len())));
        assert_eq!(bytes[..4], [0x55; 4]);
        for len in 0..bytes.len() {
            assert_eq!(UdpHeader::parse(&bytes[..len]), None, "cut to {len}");
        }
    }
    assert_eq!(header("10.0.0.1:7174".parse().unwrap()), [4, 8, 0x1c, 0x06, 10, 0, 0, 1]);
}

proptest! {
    #[test]
    fn any_word_means_something(bits: u32) {
        let _ = Message::from_bits(bits);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        if let Some(said) = ConnData::parse(&bytes) {
            prop_assert_eq!(ConnData::parse(&said.to_bytes()), Some(said));
        }
        if let Some((_, used)) = parse_header(&bytes) {
            prop_assert!(used <= bytes.len());
        }
        if let Some((_, used)) = UdpHeader::parse(&bytes) {
            prop_assert!(used <= bytes.len());
        }
    }

    #[test]
    fn places_in_memory_survive(addr: u64, key: u32, length: u32, offset: u64) {
        let memory = Segment { addr, key, length };
        prop_assert_eq!(Segment::from_bytes(&memory.to_bytes(ByteOrder::Native)), memory);
        prop_assert_eq!(Segment::from_network(&memory.to_network()), memory);
        let iomap = Iomap { offset, memory };
        prop_assert_eq!(Iomap::from_bytes(&iomap.to_bytes(ByteOrder::Native)), iomap);
        let swapped = Iomap::from_bytes(&iomap.to_bytes(ByteOrder::Swapped));
        prop_assert_eq!(swapped.offset, offset.swap_bytes());
        prop_assert_eq!(swapped.memory.length, length.swap_bytes());
    }
}
