//! Packets as values: each is written as its differences from the template [`PACKET`].

use std::net::IpAddr;

use urxe_wire::packet::{self, MAX_PACKET_LEN};
use urxe_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Ext, Feth, IcrcSeed, IcrcSolver, IcrcVerdict, Msn, NakCode,
    Opcode, PKey, PacketRepr, PacketView, PlacementType, Psn, Qpn, ROCE_PORT, Reth, Rkey, RnrTimer,
    SelectivityLevel, Syndrome,
};

use crate::wire::PacketRun;

/// A packet from BTH to payload, without lengths, pad and ICRC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The opcode.
    pub opcode: Opcode,
    /// The PSN.
    pub psn: u32,
    /// Whether the packet requests an acknowledgement.
    pub ack_req: bool,
    /// Whether the solicited event bit is set.
    pub solicited: bool,
    /// The partition key.
    pub pkey: u16,
    /// Whether BECN, the backward congestion bit, is set.
    pub becn: bool,
    /// The extension headers.
    pub ext: Ext,
    /// The payload.
    pub payload: Vec<u8>,
}

/// The template: a SEND without payload.
pub const PACKET: Packet = Packet {
    opcode: Opcode::RcSendOnly,
    psn: 100,
    ack_req: false,
    solicited: false,
    pkey: 0xffff,
    becn: false,
    ext: Ext::None,
    payload: Vec::new(),
};

impl Packet {
    /// Returns the packet as the bytes of a datagram to a queue pair.
    ///
    /// # Panics
    /// If the extension does not fit the opcode.
    #[must_use]
    pub fn bytes(&self, from: IpAddr, to: IpAddr, dest_qp: Qpn, identification: u16) -> Vec<u8> {
        let mut bth = Bth::new(self.opcode, dest_qp, Psn::new(self.psn));
        bth.ack_req = self.ack_req;
        bth.solicited = self.solicited;
        bth.pkey = PKey(self.pkey);
        bth.becn = self.becn;
        bth.pad_count = packet::pad_count(self.payload.len());
        let mut bytes = vec![0xa5; MAX_PACKET_LEN];
        let end = PacketRepr::new(bth, self.ext)
            .emit_headers(&mut bytes)
            .expect("the opcode's extension");
        bytes[end..end + self.payload.len()].copy_from_slice(&self.payload);
        let end = packet::emit_pad(&mut bytes, end + self.payload.len()).expect("room");
        let seed = IcrcSeed::new(from, ROCE_PORT, to, ROCE_PORT).expect("one family");
        let end = seed.append(identification, &mut bytes, end).expect("room");
        bytes.truncate(end);
        bytes
    }

    /// Merges packets for these queue pairs into one run, as GRO does.
    ///
    /// # Panics
    /// If the packets differ in size, or there are none.
    pub fn merge(
        from: IpAddr,
        to: IpAddr,
        packets: impl IntoIterator<Item = (Qpn, Self)>,
    ) -> PacketRun {
        let packets: Vec<Vec<u8>> = (0..)
            .zip(packets)
            .map(|(place, (dest_qp, packet))| packet.bytes(from, to, dest_qp, place))
            .collect();
        let segment_size = packets[0].len();
        assert!(packets.iter().all(|packet| packet.len() == segment_size));
        PacketRun::new(from, to, packets.concat(), segment_size)
    }

    /// Parses the packets of a run that a device sent, and verifies their ICRCs. Returns each
    /// packet with its destination queue pair.
    ///
    /// # Panics
    /// If a packet is malformed or its ICRC is wrong.
    pub fn sent(run: &PacketRun) -> impl Iterator<Item = (Qpn, Self)> {
        let seed = run.icrc_seed();
        run.segments().enumerate().map(move |(index, bytes)| {
            let identification = index as u16;
            let verdict = seed.verify(&mut IcrcSolver::new(), bytes, identification);
            assert_eq!(verdict, IcrcVerdict::Exact { identification });
            let packet = PacketView::parse(bytes).expect("the device sends valid packets");
            let repr = packet.to_repr();
            let sent = Self {
                opcode: packet.opcode(),
                psn: packet.psn().value(),
                ack_req: packet.ack_req(),
                solicited: packet.solicited(),
                pkey: packet.pkey().0,
                becn: repr.bth.becn,
                ext: repr.ext,
                payload: packet.payload().to_vec(),
            };
            (packet.dest_qp(), sent)
        })
    }
}

/// Returns a packet with this payload and no extension.
#[must_use]
pub fn part(opcode: Opcode, psn: u32, payload: &[u8]) -> Packet {
    Packet { opcode, psn, payload: payload.to_vec(), ..PACKET }
}

/// Returns an acknowledgement of the peer.
#[must_use]
pub fn ack(psn: u32) -> Packet {
    answer(psn, Syndrome::ACK)
}

/// Returns a NAK of the peer.
#[must_use]
pub fn nak(psn: u32, code: NakCode) -> Packet {
    answer(psn, Syndrome::Nak(code))
}

/// Returns an RNR NAK of the peer with this timer code.
///
/// # Panics
/// If the code has more than five bits.
#[must_use]
pub fn rnr_nak(psn: u32, code: u8) -> Packet {
    answer(psn, Syndrome::RnrNak(RnrTimer::new(code).expect("a code of five bits")))
}

/// Returns an acknowledgement with any syndrome and MSN 0.
#[must_use]
pub fn answer(psn: u32, syndrome: Syndrome) -> Packet {
    answered(psn, syndrome, 0)
}

/// Returns an acknowledgement with any syndrome and MSN, the number of completed messages.
#[must_use]
pub fn answered(psn: u32, syndrome: Syndrome, msn: u32) -> Packet {
    Packet { opcode: Opcode::RcAcknowledge, psn, ext: Ext::Aeth(aeth(syndrome, msn)), ..PACKET }
}

/// Returns a READ response with this MSN.
#[must_use]
pub fn read_response(opcode: Opcode, psn: u32, msn: u32, payload: &[u8]) -> Packet {
    let is_middle = opcode == Opcode::RcReadResponseMiddle;
    let ext = if is_middle { Ext::None } else { Ext::Aeth(aeth(Syndrome::ACK, msn)) };
    Packet { ext, ..part(opcode, psn, payload) }
}

/// Returns the response to an atomic operation.
#[must_use]
pub fn atomic_response(psn: u32, msn: u32, original: u64) -> Packet {
    let ext = Ext::AtomicAck(aeth(Syndrome::ACK, msn), AtomicAckEth { original });
    Packet { ext, ..part(Opcode::RcAtomicAcknowledge, psn, &[]) }
}

/// Returns a WRITE of one packet that requests an acknowledgement.
#[must_use]
pub fn write_only(psn: u32, va: u64, rkey: Rkey, payload: &[u8]) -> Packet {
    request(Opcode::RcWriteOnly, psn, reth(va, rkey, payload.len()), payload)
}

/// Returns a SEND of one packet that requests an acknowledgement.
#[must_use]
pub fn send_only(psn: u32, payload: &[u8]) -> Packet {
    request(Opcode::RcSendOnly, psn, Ext::None, payload)
}

/// Returns a READ request.
#[must_use]
pub fn read_request(psn: u32, va: u64, rkey: Rkey, len: usize) -> Packet {
    request(Opcode::RcReadRequest, psn, reth(va, rkey, len), &[])
}

/// Returns a fetch-and-add request.
#[must_use]
pub fn fetch_add(psn: u32, va: u64, rkey: Rkey, add: u64) -> Packet {
    let ext = Ext::Atomic(AtomicEth { va, rkey, swap_or_add: add, compare: 0 });
    request(Opcode::RcFetchAdd, psn, ext, &[])
}

/// Returns a compare-and-swap request.
#[must_use]
pub fn compare_swap(psn: u32, va: u64, rkey: Rkey, compare: u64, swap: u64) -> Packet {
    let ext = Ext::Atomic(AtomicEth { va, rkey, swap_or_add: swap, compare });
    request(Opcode::RcCompareSwap, psn, ext, &[])
}

/// Returns an ATOMIC WRITE request.
#[must_use]
pub fn atomic_write(psn: u32, va: u64, rkey: Rkey, value: [u8; 8]) -> Packet {
    request(Opcode::RcAtomicWrite, psn, reth(va, rkey, 8), &value)
}

/// Returns a FLUSH request with this placement, of a range or of the whole region.
#[must_use]
pub fn flush(
    psn: u32,
    (va, len): (u64, usize),
    rkey: Rkey,
    placement: PlacementType,
    selectivity: SelectivityLevel,
) -> Packet {
    let reth = Reth { va, rkey, dma_len: len as u32 };
    request(Opcode::RcFlush, psn, Ext::Flush(Feth { placement, selectivity }, reth), &[])
}

/// Returns a request of one packet that requests an acknowledgement.
#[must_use]
pub fn request(opcode: Opcode, psn: u32, ext: Ext, payload: &[u8]) -> Packet {
    Packet { ack_req: true, ext, ..part(opcode, psn, payload) }
}

fn aeth(syndrome: Syndrome, msn: u32) -> Aeth {
    Aeth { syndrome, msn: Msn::masked(msn) }
}

/// Returns a RETH as an extension.
#[must_use]
pub fn reth(va: u64, rkey: Rkey, len: usize) -> Ext {
    Ext::Reth(Reth { va, rkey, dma_len: len as u32 })
}
