//! The run being built: equal packets for one path in one contiguous buffer, sent by one system
//! call.
//!
//! ```text
//! | packet 0 | packet 1 | ... | packet n-1 |      segment_size bytes each, the last may be shorter
//! ```
//!
//! A packet longer than the first does not fit, and none fits behind a shorter one: the caller
//! sends the run and begins another. Packet i has an ICRC made for the IPv4 identification i. The
//! kernel writes that identification when it segments a GSO send from an unconnected socket with
//! DF. A run that stays in the memory of the host has four zeros in place of each ICRC.

use urxe_wire::packet::{self, ICRC_LEN, emit_pad};
use urxe_wire::{IcrcSeed, Opcode, PacketRepr};

use super::acks::Ack;
use urxe_types::allocate::OutOfMemory;

/// The most bytes of a run: the longest GSO send of every port, less headers of all kinds.
pub(crate) const MAX_RUN_BYTES: usize = 65_469;

/// Returns the length in bytes of a packet of `opcode` with `payload_len` bytes of payload.
#[inline]
pub(crate) fn packet_len(opcode: Opcode, payload_len: usize) -> usize {
    packet::packet_len(opcode.info().headers_len(), payload_len)
}

/// A buffer for one run, allocated once for its path.
#[derive(Debug)]
pub(crate) struct RunBuffer {
    bytes: Box<[u8]>,
    len: usize,
    segment_size: usize,
    count: usize,
    max_segments: usize,
    /// Whether the run stays in the memory of this host. Its packets have no ICRC then.
    is_in_memory: bool,
    /// The seed of the ICRCs of the path's packets.
    icrc: IcrcSeed,
    /// The last packet was shorter, so none can follow.
    closed: bool,
}

impl RunBuffer {
    /// Makes an empty buffer.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(icrc: IcrcSeed) -> Result<Self, OutOfMemory> {
        Ok(Self {
            bytes: urxe_memory::zeroed(MAX_RUN_BYTES)?,
            len: 0,
            segment_size: 0,
            count: 0,
            max_segments: 1,
            is_in_memory: false,
            icrc,
            closed: false,
        })
    }

    /// Prepares an empty buffer. `max_segments` is the most packets that the port takes in one
    /// call: 1 without GSO. `is_in_memory`: the runs stay in the memory of this host.
    pub fn prepare(&mut self, max_segments: usize, is_in_memory: bool) {
        debug_assert!(self.is_empty());
        self.max_segments = max_segments.max(1);
        self.is_in_memory = is_in_memory;
    }

    /// Returns whether the run stays in the memory of this host.
    pub fn is_in_memory(&self) -> bool {
        self.is_in_memory
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Returns the bytes of the packets.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn segment_size(&self) -> usize {
        self.segment_size
    }

    pub fn count(&self) -> usize {
        self.count
    }

    pub fn clear(&mut self) {
        self.len = 0;
        self.count = 0;
        self.closed = false;
    }

    /// Returns whether a packet of `len` bytes fits.
    pub fn takes(&self, len: usize) -> bool {
        self.count == 0
            || (!self.closed
                && len <= self.segment_size
                && self.count < self.max_segments
                && self.len + len <= self.bytes.len())
    }

    /// Returns whether a packet of `len` bytes would be the last one, because it is shorter than
    /// those before it.
    pub fn closes_with(&self, len: usize) -> bool {
        self.count > 0 && len < self.segment_size
    }

    /// Appends a packet: headers, `payload_len` bytes that `fill` writes, pad and ICRC. The caller
    /// must check its length by [`takes`](Self::takes).
    ///
    /// # Errors
    /// The error of `fill`. Nothing was appended.
    #[inline(always)] // called in one place for each kind of packet
    pub fn append<E>(
        &mut self,
        mut packet_repr: PacketRepr,
        payload_len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        packet_repr.bth.pad_count = packet::pad_count(payload_len);
        let headers_len = packet_repr.headers_len();
        let len = packet::packet_len(headers_len, payload_len);
        assert!(self.takes(len), "a packet of {len} bytes does not fit the run");
        let packet = &mut self.bytes[self.len..self.len + len];
        let written = packet_repr.emit_headers(packet);
        assert_eq!(
            written,
            Ok(headers_len),
            "headers that are not the opcode's: {:?}",
            packet_repr.bth.opcode
        );
        let payload_end = headers_len + payload_len;
        fill(&mut packet[headers_len..payload_end])?;
        let padded = emit_pad(packet, payload_end);
        debug_assert_eq!(padded, Some(len - ICRC_LEN));
        self.end_packet(len);
        Ok(())
    }

    /// Appends an acknowledgement that left its queue pair. The caller must check by
    /// [`takes`](Self::takes). A separate function, because many queue pairs may send as many
    /// acknowledgements as messages.
    pub fn append_ack(&mut self, ack: Ack) {
        assert!(self.takes(Ack::LEN), "an acknowledgement does not fit the run");
        let (bth, aeth) = ack.headers();
        let packet = &mut self.bytes[self.len..self.len + Ack::LEN];
        let (bth_bytes, rest) =
            packet.split_first_chunk_mut().expect("an acknowledgement begins with a BTH");
        bth.emit(bth_bytes);
        aeth.emit(rest.first_chunk_mut().expect("and goes on with an AETH"));
        self.end_packet(Ack::LEN);
    }

    /// Writes the ICRC of a packet of `len` bytes behind the others, and counts the packet.
    #[inline(always)]
    fn end_packet(&mut self, len: usize) {
        let packet = &mut self.bytes[self.len..self.len + len];
        if self.is_in_memory {
            packet[len - ICRC_LEN..].fill(0);
        } else {
            let appended = self.icrc.append(self.count as u16, packet, len - ICRC_LEN);
            debug_assert_eq!(appended, Some(len));
        }
        self.count_in(len);
    }

    /// Counts a packet of `len` bytes that was written behind the others.
    #[inline]
    fn count_in(&mut self, len: usize) {
        if self.count == 0 {
            self.segment_size = len;
        } else if len < self.segment_size {
            self.closed = true;
        }
        self.count += 1;
        self.len += len;
    }
}

#[cfg(test)]
mod tests;
