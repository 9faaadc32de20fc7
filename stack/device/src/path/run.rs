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
//!
//! A run in memory is built in *room* that the receiver reads, if the port has room. So its payload
//! is copied once. The receiver can change the room at any time, so headers are made in private
//! memory and copied there, and nothing is read from there.

use std::sync::atomic::AtomicU8;

use urxe_memory::WriteOnly;
use urxe_types::allocate::OutOfMemory;
use urxe_types::port::MAX_RUN_BYTES;
use urxe_wire::packet::{self, ICRC_LEN, MAX_HEADERS_LEN, emit_pad};
use urxe_wire::{IcrcSeed, Opcode, PacketRepr};

use super::acks::Ack;

/// Returns the length in bytes of a packet of `opcode` with `payload_len` bytes of payload.
#[inline]
pub(crate) fn packet_len(opcode: Opcode, payload_len: usize) -> usize {
    packet::packet_len(opcode.info().headers_len(), payload_len)
}

/// The private memory of a path's runs.
pub(crate) type RunMemory = Box<[u8]>;

/// Allocates the private memory of a path's runs.
///
/// # Errors
/// [`OutOfMemory`].
pub(crate) fn run_memory() -> Result<RunMemory, OutOfMemory> {
    urxe_memory::zeroed(MAX_RUN_BYTES)
}

/// The run being built, of one call that sends.
#[derive(Debug)]
pub(crate) struct RunBuffer<'b> {
    private: &'b mut [u8],
    /// The room in which the run is built instead, if there is some.
    room: Option<&'b [AtomicU8]>,
    len: usize,
    segment_size: usize,
    count: usize,
    max_segments: usize,
    /// The seed of the ICRCs of the path's packets; `None` for packets that stay in the memory of
    /// this host.
    icrc: Option<&'b IcrcSeed>,
    /// The last packet was shorter, so none can follow.
    closed: bool,
}

/// The bytes of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RunBytes<'r> {
    Private(&'r [u8]),
    /// In the room of the run.
    Room(&'r [AtomicU8]),
}

impl<'b> RunBuffer<'b> {
    /// Makes an empty buffer. `max_segments` is the most packets that the port takes in one call: 1
    /// without GSO. `icrc` is `None` for runs that stay in the memory of this host.
    pub fn new(private: &'b mut [u8], max_segments: usize, icrc: Option<&'b IcrcSeed>) -> Self {
        Self {
            private,
            room: None,
            len: 0,
            segment_size: 0,
            count: 0,
            max_segments: max_segments.max(1),
            icrc,
            closed: false,
        }
    }

    /// Returns whether the next packet begins a run that has no room yet.
    #[inline]
    pub fn lacks_room(&self) -> bool {
        self.count == 0 && self.room.is_none()
    }

    /// Gives an empty run room of at least [`MAX_RUN_BYTES`]. Only runs in memory have room.
    pub fn set_room(&mut self, room: &'b [AtomicU8]) {
        debug_assert!(self.is_empty() && self.icrc.is_none() && room.len() >= MAX_RUN_BYTES);
        self.room = Some(room);
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn bytes(&self) -> RunBytes<'_> {
        match self.room {
            Some(room) => RunBytes::Room(&room[..self.len]),
            None => RunBytes::Private(&self.private[..self.len]),
        }
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

    /// Begins another run, without room.
    pub fn clear(&mut self) {
        self.len = 0;
        self.count = 0;
        self.closed = false;
        self.room = None;
    }

    /// Returns whether a packet of `len` bytes fits.
    pub fn takes(&self, len: usize) -> bool {
        self.count == 0
            || (!self.closed
                && len <= self.segment_size
                && self.count < self.max_segments
                && self.len + len <= MAX_RUN_BYTES)
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
        fill: impl FnOnce(WriteOnly<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        packet_repr.bth.pad_count = packet::pad_count(payload_len);
        let headers_len = packet_repr.headers_len();
        let len = packet::packet_len(headers_len, payload_len);
        assert!(self.takes(len), "a packet of {len} bytes does not fit the run");
        let range = self.len..self.len + len;
        let (payload, written) = match self.room {
            None => {
                let packet = &mut self.private[range];
                let written = packet_repr.emit_headers(packet);
                let payload = WriteOnly::from(&mut packet[headers_len..headers_len + payload_len]);
                (payload, written)
            }
            Some(room) => {
                let mut headers = [0; MAX_HEADERS_LEN];
                let written = packet_repr.emit_headers(&mut headers);
                let packet = WriteOnly::from(&room[range]);
                packet.slice(0..headers_len).copy_from(&headers[..headers_len]);
                (packet.slice(headers_len..headers_len + payload_len), written)
            }
        };
        assert_eq!(
            written,
            Ok(headers_len),
            "headers that are not the opcode's: {:?}",
            packet_repr.bth.opcode
        );
        fill(payload)?;
        self.end_packet(len, headers_len + payload_len);
        Ok(())
    }

    /// Appends an acknowledgement that left its queue pair. The caller must check by
    /// [`takes`](Self::takes). A separate function, because many queue pairs may send as many
    /// acknowledgements as messages.
    pub fn append_ack(&mut self, ack: Ack) {
        const HEADERS_LEN: usize = Ack::LEN - ICRC_LEN;
        assert!(self.takes(Ack::LEN), "an acknowledgement does not fit the run");
        let (bth, aeth) = ack.headers();
        let mut headers = [0; HEADERS_LEN];
        let (bth_bytes, rest) =
            headers.split_first_chunk_mut().expect("an acknowledgement begins with a BTH");
        bth.emit(bth_bytes);
        aeth.emit(rest.first_chunk_mut().expect("and goes on with an AETH"));
        let range = self.len..self.len + HEADERS_LEN;
        match self.room {
            None => self.private[range].copy_from_slice(&headers),
            Some(room) => WriteOnly::from(&room[range]).copy_from(&headers),
        }
        self.end_packet(Ack::LEN, HEADERS_LEN);
    }

    /// Writes the pad and the ICRC of a packet of `len` bytes behind the others, whose payload ends
    /// at `payload_end`, and counts the packet.
    #[inline(always)]
    fn end_packet(&mut self, len: usize, payload_end: usize) {
        let range = self.len..self.len + len;
        match (self.room, self.icrc) {
            (Some(room), _) => {
                WriteOnly::from(&room[range]).slice(payload_end..len).fill(0);
            }
            (None, None) => self.private[range][payload_end..].fill(0),
            (None, Some(icrc)) => {
                let packet = &mut self.private[range];
                let padded = emit_pad(packet, payload_end);
                debug_assert_eq!(padded, Some(len - ICRC_LEN));
                let appended = icrc.append(self.count as u16, packet, len - ICRC_LEN);
                debug_assert_eq!(appended, Some(len));
            }
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
