//! `rstream` of rdma-core between two kernels: the state machine produces the private data and
//! every message of the capture byte for byte.

use std::collections::VecDeque;
use std::net::{IpAddr, Shutdown};
use std::path::Path;

use pcap_parser::{LegacyPcapReader, PcapBlockOwned, PcapError, traits::PcapReaderIterator};
use urxe_wire::mad::{CmMessage, Mad};
use urxe_wire::{Frame, PacketView, Qpn};

use super::two_ends::read_targets;
use crate::protocol::connect::ConnData;
use crate::protocol::message::{Control, Message};
use crate::protocol::segment::Segment;
use crate::protocol::stream::{Bytes, ListRead, LocalMemory, Post, Sizes, Stream};

/// The defaults of rdma-core, except for the buffers: rstream requests 512 KiB, and an rsocket
/// doubles the size.
const SIZES: Sizes = Sizes {
    send_queue: 384,
    recv_queue: 384,
    inline: 64,
    send_buffer: 1 << 20,
    recv_buffer: 1 << 20,
    iomaps: 0,
};
/// Length of the connection manager's header in front of the program's private data.
const CMA_HEADER: usize = 36;

struct Sent {
    from: IpAddr,
    addr: u64,
    key: u32,
    imm: u32,
    payload: Vec<u8>,
}

/// Request and reply with their private data, and all messages of the stream.
struct Capture {
    request: (IpAddr, Vec<u8>),
    reply: Vec<u8>,
    sent: Vec<Sent>,
}

fn read() -> Capture {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wire/testdata/rstream.pcap");
    let bytes = std::fs::read(file).unwrap();
    let mut reader = LegacyPcapReader::new(1 << 20, &bytes[..]).unwrap();
    let (mut request, mut reply, mut sent) = (None, None, Vec::new());
    loop {
        match reader.next() {
            Ok((used, block)) => {
                if let PcapBlockOwned::Legacy(block) = block {
                    let frame = Frame::parse(block.data).unwrap();
                    let packet = PacketView::parse(frame.udp_payload).unwrap();
                    let from = frame.repr.src.ip();
                    if packet.bth().dest_qp == Qpn::QP1 {
                        match Mad::parse(packet.payload()).unwrap().message {
                            CmMessage::Req(req) => {
                                request =
                                    Some((from, req.private_data.bytes()[CMA_HEADER..].to_vec()));
                            }
                            CmMessage::Rep(rep) => reply = Some(rep.private_data.bytes().to_vec()),
                            _ => {}
                        }
                    } else if let (Some(reth), Some(imm)) = (packet.reth(), packet.imm()) {
                        let payload = packet.payload().to_vec();
                        let (addr, key, imm) = (reth.va, reth.rkey.value(), imm.data);
                        sent.push(Sent { from, addr, key, imm, payload });
                    }
                }
                reader.consume(used);
            }
            Err(PcapError::Eof) => break,
            Err(PcapError::Incomplete(_)) => reader.refill().unwrap(),
            Err(error) => panic!("{error:?}"),
        }
    }
    Capture { request: request.unwrap(), reply: reply.unwrap(), sent }
}

fn places(own: &ConnData) -> LocalMemory {
    let place = |segment: Segment| (segment.addr, segment.key);
    LocalMemory { list: place(own.targets), recv_buffer: place(own.first_target) }
}

/// One side, with the memory that its peer writes.
struct End {
    stream: Stream,
    places: LocalMemory,
    list: [u8; 2 * Segment::LEN],
    /// Grants, which are posted as soon as they are due.
    grants: VecDeque<Post>,
}

impl End {
    fn new(own: &ConnData, peer: &ConnData) -> Self {
        let places = places(own);
        let mut stream = Stream::new(SIZES, places, peer).unwrap();
        let grants = stream.grant().into_iter().collect();
        Self { stream, places, list: [0; 2 * Segment::LEN], grants }
    }

    fn receive(&mut self, sent: &Sent) {
        if Message::from_bits(sent.imm) == Message::Grant(0x180) && !sent.payload.is_empty() {
            let at = (sent.addr - self.places.list.0) as usize;
            self.list[at..at + Segment::LEN].copy_from_slice(&sent.payload);
        }
        if self.stream.received(Some(sent.imm)) == ListRead::Targets {
            read_targets(&mut self.stream, &mut self.list);
        }
        let there = self.stream.receiver.readable(usize::MAX);
        self.stream.receiver.consume(there.iter().map(std::ops::Range::len).sum());
        self.grants.extend(self.stream.grant());
    }
}

#[test]
fn both_ends_introduce_themselves_as_the_original() {
    let Capture { request: (_, request), reply, .. } = read();
    for said in [request, reply] {
        let parsed = ConnData::parse(&said).unwrap();
        assert_eq!(parsed.to_bytes(), said[..ConnData::LEN]);
        assert_eq!(Stream::conn_data(&SIZES, &places(&parsed)), parsed);
    }
}

#[test]
fn every_message_comes_out_as_it_was_captured() {
    let Capture { request: (active_ip, request), reply, sent } = read();
    let (request, reply) = (ConnData::parse(&request).unwrap(), ConnData::parse(&reply).unwrap());
    let (mut active, mut passive) = (End::new(&request, &reply), End::new(&reply, &request));
    assert_eq!(sent.len(), 55);
    for message in &sent {
        let (from, to) = if message.from == active_ip {
            (&mut active, &mut passive)
        } else {
            (&mut passive, &mut active)
        };
        let wanted = Message::from_bits(message.imm);
        let grants = from.grants.pop_front();
        assert_eq!(grants.is_some(), matches!(wanted, Message::Grant(_)), "{wanted:?}");
        let post = grants.unwrap_or_else(|| match wanted {
            Message::Data(bytes) => {
                assert!(from.stream.sender.is_ready());
                from.stream.send(bytes)
            }
            Message::Control(Control::Disconnect) => {
                let control = from.stream.shutdown(Shutdown::Both).unwrap();
                from.stream.control(control).unwrap()
            }
            other => panic!("{other:?}"),
        });
        assert!(post.has_imm);
        assert_eq!(post.message.to_bits(), message.imm);
        match &post {
            // The original leaves an uninitialized address in messages without data.
            Post { bytes: Bytes::None, .. } => assert!(message.payload.is_empty()),
            Post { bytes: Bytes::Segment(bytes), to, .. } => {
                assert_eq!(
                    (bytes.as_slice(), *to),
                    (&message.payload[..], (message.addr, message.key))
                );
            }
            Post { bytes: Bytes::Stream(transfer), to, .. } => {
                assert_eq!(transfer.len as usize, message.payload.len());
                assert_eq!(*to, (message.addr, message.key));
            }
            other => panic!("{other:?}"),
        }
        from.stream.sent(post.message, true);
        to.receive(message);
    }
    assert!(!active.stream.is_open() && !passive.stream.is_open());
}
