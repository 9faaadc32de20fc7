//! Any bytes as each message of an rsocket: private data, immediate data, memory segments, and the
//! headers of datagrams.

use urxe_rsocket::protocol::connect::{self, ConnData, decode_iomaps, encode_iomaps};
use urxe_rsocket::protocol::datagram::{UdpHeader, UdpOp, header, parse_header};
use urxe_rsocket::protocol::message::{Message, Work};
use urxe_rsocket::protocol::segment::{ByteOrder, Iomap, Segment};

/// Checks the bytes as each message.
pub fn check(bytes: &[u8]) {
    private_data(bytes);
    datagram(bytes);
    udp_message(bytes);
    if let Some(word) = bytes.first_chunk() {
        immediate_data(u32::from_be_bytes(*word));
    }
    if let Some(bytes) = bytes.first_chunk() {
        let iomap = Iomap::from_bytes(bytes);
        assert_eq!(&iomap.to_bytes(ByteOrder::Native), bytes);
        let swapped = Iomap::from_bytes(&iomap.to_bytes(ByteOrder::Swapped));
        assert_eq!(&swapped.to_bytes(ByteOrder::Swapped), bytes);
        let memory = iomap.memory;
        assert_eq!(Segment::from_network(&memory.to_network()), memory);
        if let Some((addr, left)) = iomap.locate(iomap.offset) {
            assert_eq!((addr, left), (memory.addr, memory.length.into()));
        }
    }
}

fn private_data(bytes: &[u8]) {
    let Some(data) = ConnData::parse(bytes) else {
        let is_long = bytes.len() >= ConnData::LEN;
        return assert!(!is_long || bytes[0] != connect::VERSION);
    };
    let again = data.to_bytes();
    assert_eq!(ConnData::parse(&again), Some(data));
    // Reserved bits become zero; all other bits are unchanged.
    assert!(again.iter().zip(bytes).all(|(new, old)| new & !old == 0));
    // A number of iomappings is rounded down.
    let iomaps = decode_iomaps(data.iomaps);
    assert!(decode_iomaps(encode_iomaps(iomaps)) <= iomaps);
}

/// Checks the header of a datagram between queue pairs.
fn datagram(bytes: &[u8]) {
    let Some((from, used)) = parse_header(bytes) else { return };
    assert!(used <= bytes.len());
    assert_eq!(header(from), bytes[..used]);
}

/// Checks the header of a message over UDP.
fn udp_message(bytes: &[u8]) {
    let Some((message, used)) = UdpHeader::parse(bytes) else { return };
    assert!(used <= bytes.len() && message.qpn < 1 << 24);
    let again = message.to_bytes();
    assert_eq!(UdpHeader::parse(&again), Some((message, again.len())));
    assert_eq!(again.len(), used);
    assert_eq!(message.op == UdpOp::Data, bytes[5] == 0);
}

fn immediate_data(word: u32) {
    let message = Message::from_bits(word);
    assert_eq!(Message::from_bits(message.to_bits()), message);
    assert_eq!(Work::of_id(message.work_id()), Work::Send(message));
    assert_eq!(Work::of_id(Work::RECEIVE_ID | u64::from(word)), Work::Receive);
}
