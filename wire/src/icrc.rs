//! The invariant CRC at the end of every packet (IBTA vol. 1, 7.8.1, and annex A17.3.3), without
//! copying a byte.
//!
//! # What it covers
//! CRC-32 (IEEE 802.3) over eight bytes 0xff (where InfiniBand has its LRH), then IP header, UDP
//! header and packet up to the ICRC, with everything that routers may change read as ones: TOS, TTL
//! and both checksums (IPv6: traffic class, flow label, hop limit, UDP checksum), and byte 4 of the
//! BTH (FECN, BECN).
//!
//! # How it is computed
//! A CRC register is a polynomial over GF(2) modulo the generator P, of degree 32, and appending
//! message bits is linear: flipping some bits of a message flips the register by (the flipped bits
//! as a polynomial) · x^32 · x^(bits that follow) mod P, whatever the message is. So:
//!
//! - What varies in the pseudo headers between packets of one path is two lengths, the
//!   identification and DF, at fixed places. An [`IcrcSeed`] is the register after the headers with
//!   zeros in those places: one word. A packet XORs in the images of its fields from tables made at
//!   compile time, and has the register that stands before its BTH.
//! - Byte 4 of the BTH reads as 0xff whatever it holds. Flipping bits e of that byte has the effect
//!   of flipping e · x^-8 in the register five bytes earlier; so the mask goes into the register,
//!   too, and the CRC runs over the packet as it is.
//!
//! # The unseen identification
//! A UDP socket does not show the sender's IPv4 identification. Let d be the ICRC received XOR the
//! ICRC computed for identification 0, and n the bytes that follow the identification. If the
//! packet is good, d = id(x) · x^(32+8n) mod P, so id(x) = d · x^-(32+8n) mod P: x is invertible, P
//! having the constant term 1. One multiplication gives the only candidate of degree below 32; when
//! its degree is 16 or more, no identification explains the ICRC. A damaged packet passes with
//! probability 2^-16. The constant depends on the length alone; an [`IcrcSolver`] keeps some.

use std::net::IpAddr;

use crc32fast::Hasher;

use crate::Opcode;
use crate::packet::ICRC_LEN;

/// The generator of CRC-32 (IEEE 802.3), x^32 left out; the coefficient of x^0 is the top bit, as
/// in the register.
const POLY: u32 = 0xedb8_8320;

/// The polynomial 1.
const ONE: u32 = 1 << 31;

/// a · b mod P.
const fn mul(a: u32, b: u32) -> u32 {
    let mut product = 0;
    let mut power = a;
    let mut i = 0;
    while i < 32 {
        // The coefficient of x^i in b selects a · x^i.
        product ^= power & (((b << i) as i32) >> 31) as u32;
        power = times_x(power);
        i += 1;
    }
    product
}

/// a · x mod P.
const fn times_x(a: u32) -> u32 {
    (a >> 1) ^ (POLY & 0u32.wrapping_sub(a & 1))
}

/// x^n mod P. P is primitive, so that x^(2^32-1) = 1 and a negative power is a positive one.
const fn x_pow(n: i64) -> u32 {
    let mut n = n.rem_euclid((1 << 32) - 1);
    let mut square = ONE >> 1;
    let mut result = ONE;
    while n > 0 {
        if n & 1 == 1 {
            result = mul(result, square);
        }
        square = mul(square, square);
        n >>= 1;
    }
    result
}

/// What flipping each value of a byte flips in the register `after` bytes later. Negative: earlier,
/// see the module's text.
const fn byte_image(after: i64) -> [u32; 256] {
    let shift = x_pow(32 + 8 * after);
    let mut table = [0; 256];
    let mut byte = 1;
    while byte < 256 {
        // A byte enters lowest bit first, so that its bits are x^7 ..= x^0: the top byte of a
        // register.
        table[byte] = mul((byte as u32) << 24, shift);
        byte += 1;
    }
    table
}

/// The images of a 16-bit field in network order whose last byte has `after` bytes behind it.
struct FieldImage {
    high: [u32; 256],
    low: [u32; 256],
}

impl FieldImage {
    const fn new(after: i64) -> Self {
        Self { high: byte_image(after + 1), low: byte_image(after) }
    }

    #[inline]
    fn of(&self, value: u16) -> u32 {
        let [high, low] = value.to_be_bytes();
        self.high[high as usize] ^ self.low[low as usize]
    }
}

// Places within the 28 bytes of IPv4 and UDP headers: total length 2..4, identification 4..6, UDP
// length 24..26.
static V4_TOTAL_LEN: FieldImage = FieldImage::new(24);
static V4_IDENTIFICATION: FieldImage = FieldImage::new(V4_AFTER_IDENTIFICATION);
const V4_AFTER_IDENTIFICATION: i64 = 22;
/// DF is bit 6 of byte 6.
const V4_DF: u32 = byte_image(21)[0x40];
// UDP length, 2 bytes before the end of the UDP header in both families; payload length 4..6 of the
// IPv6 header.
static UDP_LEN: FieldImage = FieldImage::new(2);
static V6_PAYLOAD_LEN: FieldImage = FieldImage::new(42);
/// Byte 4 of the BTH, seen from before the BTH.
static BTH_MASK: [u32; 256] = byte_image(-5);

/// BTH and AETH: an acknowledgement up to its ICRC. Where many queue pairs have one each, they are
/// as many as all other packets together.
const ACK_LEN: usize = 16;
/// What each byte of so many flips in the register at their end.
static ACK_BYTES: [[u32; 256]; ACK_LEN] = {
    let mut tables = [[0; 256]; ACK_LEN];
    let mut place = 0;
    while place < ACK_LEN {
        tables[place] = byte_image((ACK_LEN - 1 - place) as i64);
        place += 1;
    }
    tables
};

const UDP_HEADER_LEN: u16 = 8;
const IPV4_HEADER_LEN: u16 = 20;

/// What the ICRCs of all packets from one address and port to another have in common. Made once a
/// path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcrcSeed {
    /// The CRC of eight bytes 0xff and the masked headers, with lengths, identification and flags
    /// zero.
    base: u32,
    ipv4: bool,
    flush: FlushIcrc,
}

/// What the ICRC of a FLUSH covers when it is sent. Both kinds are accepted.
///
/// The kernel's `rdma_rxe` has no place of a payload in its table for FLUSH (`rxe_opcode.c`, 6.2 to
/// 6.12 at least), and so lets the CRC run over the packet a second time, without a mask. Between
/// its own that goes unnoticed; a FLUSH with the ICRC of the specification it drops. Measured: all
/// of a hundred packets of a kernel 6.12.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlushIcrc {
    /// What `rdma_rxe` sends and wants, the one known implementation.
    #[default]
    Rxe,
    /// What the specification says.
    Standard,
}

/// What a received ICRC says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcrcVerdict {
    /// Right, with the identification that was expected: 0 or the segment's index. Always 0 for
    /// IPv6. As strong as a CRC-32.
    Exact {
        /// The IPv4 identification.
        identification: u16,
    },
    /// Right, if the sender used this identification: a damaged packet gets here once in 2^16
    /// times.
    Solved {
        /// The IPv4 identification.
        identification: u16,
    },
    /// Wrong.
    Bad,
}

impl IcrcSeed {
    /// The seed of packets from `src` and `src_port` to `dst` and `dst_port` (which is
    /// [`crate::ROCE_PORT`] on the wire). `None` when the addresses are not of one family.
    #[must_use]
    pub fn new(src: IpAddr, src_port: u16, dst: IpAddr, dst_port: u16) -> Option<Self> {
        let mut crc = Hasher::new();
        crc.update(&[0xff; 8]);
        let ipv4 = match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                // Version and header length, TOS, total length, identification, flags, TTL,
                // protocol, checksum.
                crc.update(&[0x45, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 17, 0xff, 0xff]);
                crc.update(&src.octets());
                crc.update(&dst.octets());
                true
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                // Version, traffic class and flow label, payload length, next header, hop limit.
                crc.update(&[0x6f, 0xff, 0xff, 0xff, 0, 0, 17, 0xff]);
                crc.update(&src.octets());
                crc.update(&dst.octets());
                false
            }
            _ => return None,
        };
        crc.update(&src_port.to_be_bytes());
        crc.update(&dst_port.to_be_bytes());
        crc.update(&[0, 0, 0xff, 0xff]);
        Some(Self { base: crc.finalize(), ipv4, flush: FlushIcrc::default() })
    }

    /// The same seed, with this ICRC for the FLUSH packets that [`append`](Self::append) completes.
    #[must_use]
    pub const fn with_flush(mut self, flush: FlushIcrc) -> Self {
        self.flush = flush;
        self
    }

    /// The ICRC of a packet that goes out with this identification and DF flag (IPv4; IPv6 has
    /// neither, and ignores both). `packet` runs from the BTH to the pad, without the ICRC. Packets
    /// too long for UDP have no ICRC; what comes back for one fits nothing.
    #[must_use]
    #[inline]
    pub fn icrc(&self, identification: u16, dont_fragment: bool, packet: &[u8]) -> u32 {
        match packet.first_chunk() {
            Some(ack) if packet.len() == ACK_LEN => {
                self.icrc_of_ack(identification, dont_fragment, ack)
            }
            _ => self.hasher(identification, dont_fragment, packet).finalize(),
        }
    }

    /// The same for one length, which is worth having its register and its tables known before.
    #[inline]
    fn icrc_of_ack(&self, identification: u16, dont_fragment: bool, packet: &[u8; ACK_LEN]) -> u32 {
        // The first four bytes meet the register, which is kept complemented.
        let register = (!self.register(identification, dont_fragment, packet)).to_le_bytes();
        let mut end = 0;
        for (place, (table, byte)) in ACK_BYTES.iter().zip(packet).enumerate() {
            let met = register.get(place).copied().unwrap_or(0);
            end ^= table[usize::from(byte ^ met)];
        }
        !end
    }

    /// The ICRC that `rdma_rxe` gives a FLUSH ([`FlushIcrc::Rxe`]).
    #[must_use]
    #[cold]
    pub fn rxe_flush_icrc(&self, identification: u16, dont_fragment: bool, packet: &[u8]) -> u32 {
        let mut hasher = self.hasher(identification, dont_fragment, packet);
        hasher.update(packet);
        hasher.finalize()
    }

    /// What stands in the register before `packet`.
    #[inline(always)] // of one length most of it is known
    fn register(&self, identification: u16, dont_fragment: bool, packet: &[u8]) -> u32 {
        let udp_len = ((packet.len() + ICRC_LEN) as u16).wrapping_add(UDP_HEADER_LEN);
        let mut crc = self.base ^ UDP_LEN.of(udp_len);
        if self.ipv4 {
            crc ^= V4_TOTAL_LEN.of(udp_len.wrapping_add(IPV4_HEADER_LEN))
                ^ V4_IDENTIFICATION.of(identification)
                ^ if dont_fragment { V4_DF } else { 0 };
        } else {
            crc ^= V6_PAYLOAD_LEN.of(udp_len);
        }
        if let Some(byte) = packet.get(4) {
            crc ^= BTH_MASK[usize::from(!byte)];
        }
        crc
    }

    #[inline]
    fn hasher(&self, identification: u16, dont_fragment: bool, packet: &[u8]) -> Hasher {
        let mut hasher =
            Hasher::new_with_initial(self.register(identification, dont_fragment, packet));
        hasher.update(packet);
        hasher
    }

    /// Computes the ICRC of the packet that ends at `end` in `buf` and writes it there, with DF as
    /// a UDP socket of this stack sends it. Returns the length with the ICRC, or `None` when there
    /// is no room for it.
    #[must_use]
    #[inline]
    pub fn append(&self, identification: u16, buf: &mut [u8], end: usize) -> Option<usize> {
        let (packet, rest) = buf.split_at_mut_checked(end)?;
        let icrc = if is_flush(packet) && self.flush == FlushIcrc::Rxe {
            self.rxe_flush_icrc(identification, true, packet)
        } else {
            self.icrc(identification, true, packet)
        };
        *rest.first_chunk_mut()? = icrc.to_le_bytes();
        Some(end + ICRC_LEN)
    }

    /// Verifies a received packet, from BTH to ICRC. `segment` is its index in a GRO super-packet,
    /// 0 if it came alone. DF is taken to be set.
    ///
    /// A policy "strict" takes [`IcrcVerdict::Exact`] alone, "solve" takes [`IcrcVerdict::Solved`]
    /// as well.
    #[must_use]
    #[inline]
    pub fn verify(&self, solver: &mut IcrcSolver, packet: &[u8], segment: u16) -> IcrcVerdict {
        let Some((covered, &received)) = packet.split_last_chunk::<ICRC_LEN>() else {
            return IcrcVerdict::Bad;
        };
        let received = u32::from_le_bytes(received);
        // Most often the segment's index is right, and nothing has to be solved for.
        let expected = if self.ipv4 { segment } else { 0 };
        let difference = self.icrc(expected, true, covered) ^ received;
        let verdict = self.judge(solver, difference, covered.len(), expected);
        if !matches!(verdict, IcrcVerdict::Exact { .. }) && is_flush(covered) {
            let difference = self.rxe_flush_icrc(expected, true, covered) ^ received;
            let of_rxe = self.judge(solver, difference, 2 * covered.len(), expected);
            // One in 2^16 of rdma_rxe's fits the specification's with an identification that it has
            // not.
            if verdict == IcrcVerdict::Bad || matches!(of_rxe, IcrcVerdict::Exact { .. }) {
                return of_rxe;
            }
        }
        verdict
    }

    /// `difference`: to the ICRC for the identification `expected`. `len`: how many bytes the CRC
    /// ran over behind the UDP header.
    #[inline]
    fn judge(
        &self,
        solver: &mut IcrcSolver,
        difference: u32,
        len: usize,
        expected: u16,
    ) -> IcrcVerdict {
        if difference == 0 {
            return IcrcVerdict::Exact { identification: expected };
        }
        if !self.ipv4 {
            return IcrcVerdict::Bad;
        }
        // The CRC is linear: what is solved for is in what the identification differs from the
        // expected one.
        match solver.solve(difference, len).map(|differs| differs ^ expected) {
            Some(0) => IcrcVerdict::Exact { identification: 0 },
            Some(identification) => IcrcVerdict::Solved { identification },
            None => IcrcVerdict::Bad,
        }
    }
}

fn is_flush(packet: &[u8]) -> bool {
    packet
        .first()
        .is_some_and(|&opcode| opcode == Opcode::RcFlush as u8 || opcode == Opcode::XrcFlush as u8)
}

/// Entries an [`IcrcSolver`] keeps: neighbouring packet lengths, which are multiples of four, never
/// share one.
const SOLVER_ENTRIES: usize = 64;

/// Solves for the identification that explains an ICRC, and remembers the constants of the lengths
/// it saw last: 64 of them, 5 KiB. One a receiving thread is enough; there is nothing of a peer in
/// it.
#[derive(Clone, Debug)]
pub struct IcrcSolver {
    entries: Box<[SolverEntry; SOLVER_ENTRIES]>,
}

#[derive(Clone, Copy, Debug)]
struct SolverEntry {
    /// Length of the packet without the ICRC; no packet has the length `usize::MAX`.
    len: usize,
    /// The multiples of x^-(32+8n) by every polynomial of degree below 4.
    multiples: [u32; 16],
}

impl Default for IcrcSolver {
    fn default() -> Self {
        Self::new()
    }
}

impl IcrcSolver {
    /// A solver that has seen nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            entries: Box::new(
                [SolverEntry { len: usize::MAX, multiples: [0; 16] }; SOLVER_ENTRIES],
            ),
        }
    }

    /// The one identification whose image is `difference` (ICRC received XOR ICRC for
    /// identification 0, or for another, in what it differs from that one) in a packet of `len`
    /// bytes without ICRC; `None` when there is none.
    #[must_use]
    #[inline]
    pub fn solve(&mut self, difference: u32, len: usize) -> Option<u16> {
        let entry = &mut self.entries[(len / 4) % SOLVER_ENTRIES];
        if entry.len != len {
            *entry = SolverEntry::new(len);
        }
        let pulled_back = entry.times(difference);
        // Degree below 16: the top half of the register. The first byte on the wire holds the
        // higher powers.
        if pulled_back & 0xffff == 0 {
            Some(((pulled_back >> 16) as u16).swap_bytes())
        } else {
            None
        }
    }
}

impl SolverEntry {
    #[cold]
    fn new(len: usize) -> Self {
        let constant = x_pow(-(32 + 8 * (V4_AFTER_IDENTIFICATION + len as i64)));
        let mut multiples = [0; 16];
        for (i, multiple) in multiples.iter_mut().enumerate() {
            *multiple = mul(constant, (i as u32) << 28);
        }
        Self { len, multiples }
    }

    /// The constant times `a`, four coefficients at a time, the highest powers first (Horner).
    #[inline]
    fn times(&self, a: u32) -> u32 {
        let mut product = 0u32;
        let mut i = 0;
        while i < 32 {
            product = (product >> 4) ^ NIBBLE_REDUCTION[(product & 0xf) as usize];
            product ^= self.multiples[((a >> i) & 0xf) as usize];
            i += 4;
        }
        product
    }
}

/// What the four coefficients that a multiplication by x^4 pushes out leave behind.
static NIBBLE_REDUCTION: [u32; 16] = {
    let mut table = [0; 16];
    let mut i = 0;
    while i < 16 {
        table[i] = times_x(times_x(times_x(times_x(i as u32))));
        i += 1;
    }
    table
};

#[cfg(test)]
mod tests;
