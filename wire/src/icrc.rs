//! The invariant CRC at the end of every packet (IBTA vol. 1, 7.8.1, and annex A17.3.3), computed
//! without copying the packet.
//!
//! # Coverage
//! The ICRC is a CRC-32 (IEEE 802.3) over eight bytes 0xff, the IP header, the UDP header, and the
//! packet up to the ICRC. The eight bytes replace InfiniBand's LRH. Fields that routers may change
//! count as all ones:
//!
//! - IPv4: TOS, TTL, header checksum and UDP checksum
//! - IPv6: traffic class, flow label, hop limit and UDP checksum
//! - byte 4 of the BTH (FECN, BECN)
//!
//! # Computation
//! A CRC register is a polynomial over GF(2) modulo the generator P of degree 32. Appending message
//! bits is linear. Flipping message bits e, with n bits after them, changes the register by
//! e · x^32 · x^n mod P. The rest of the message has no influence. Two results follow:
//!
//! - Between packets of one path, only two lengths, the identification and DF vary, at fixed
//!   offsets. An [`IcrcSeed`] stores the register after the headers with zeros in these fields. A
//!   packet XORs the images of its fields, from tables made at compile time, into that register.
//! - Byte 4 of the BTH counts as 0xff. Flipping bits e of that byte has the effect of flipping
//!   e · x^-8 in the register five bytes earlier. The mask therefore goes into the register, and
//!   the CRC runs over the unchanged packet.
//!
//! # Solving for the identification
//! A UDP socket does not show the sender's IPv4 identification. Let d be the received ICRC XOR the
//! ICRC computed for identification 0, and n the number of bytes after the identification. If the
//! packet is intact, d = id(x) · x^(32+8n) mod P, so id(x) = d · x^-(32+8n) mod P. The inverse
//! exists because P has the constant term 1. One multiplication yields the only candidate of degree
//! below 32. If its degree is 16 or more, no identification explains the ICRC. A damaged packet
//! passes with probability 2^-16. The constant depends only on the length, so an [`IcrcSolver`]
//! caches some of them.

use std::net::IpAddr;

use crc32fast::Hasher;

use crate::Opcode;
use crate::packet::ICRC_LEN;

/// The generator of CRC-32 (IEEE 802.3) without x^32. As in the register, the top bit is the
/// coefficient of x^0.
const POLY: u32 = 0xedb8_8320;

/// The polynomial 1.
const ONE: u32 = 1 << 31;

/// Returns a · b mod P.
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

/// Returns a · x mod P.
const fn times_x(a: u32) -> u32 {
    (a >> 1) ^ (POLY & 0u32.wrapping_sub(a & 1))
}

/// Returns x^n mod P. P is primitive, so x^(2^32-1) = 1, and a negative power equals a positive
/// one.
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

/// Returns, for each value of a byte, the change of the register `after` bytes later. A negative
/// `after` means earlier, see the module documentation.
const fn byte_image(after: i64) -> [u32; 256] {
    let shift = x_pow(32 + 8 * after);
    let mut table = [0; 256];
    let mut byte = 1;
    while byte < 256 {
        // The lowest bit of a byte enters first, so the byte's bits are x^7 ..= x^0 in the top
        // byte.
        table[byte] = mul((byte as u32) << 24, shift);
        byte += 1;
    }
    table
}

/// The register changes for a 16-bit field in network order, `after` bytes before the end.
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

// Offsets within the 28 bytes of IPv4 and UDP headers: total length 2..4, identification 4..6, UDP
// length 24..26.
static V4_TOTAL_LEN: FieldImage = FieldImage::new(24);
static V4_IDENTIFICATION: FieldImage = FieldImage::new(V4_AFTER_IDENTIFICATION);
const V4_AFTER_IDENTIFICATION: i64 = 22;
/// DF is bit 6 of byte 6.
const V4_DF: u32 = byte_image(21)[0x40];
// The UDP length ends 2 bytes before the end of the UDP header in both IP versions. The IPv6
// payload length is at 4..6 of the IPv6 header.
static UDP_LEN: FieldImage = FieldImage::new(2);
static V6_PAYLOAD_LEN: FieldImage = FieldImage::new(42);
/// Byte 4 of the BTH, as seen before the BTH.
static BTH_MASK: [u32; 256] = byte_image(-5);

/// The length of an acknowledgement without its ICRC: BTH and AETH.
///
/// With many queue pairs that each acknowledge separately, half of all packets are
/// acknowledgements.
const ACK_LEN: usize = 16;
/// The register change at the end of an acknowledgement, for each of its bytes.
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

/// The common part of the ICRCs of all packets between two addresses and ports. Computed once for
/// each path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcrcSeed {
    /// The CRC of eight bytes 0xff and the masked headers, with zero lengths, identification and
    /// flags.
    base: u32,
    ipv4: bool,
    flush: FlushIcrc,
}

/// The coverage of the ICRC in FLUSH packets that are sent. Received FLUSH packets may use either.
///
/// The opcode table of the kernel's `rdma_rxe` has no payload offset for FLUSH (`rxe_opcode.c`, at
/// least 6.2 to 6.12). Therefore `rdma_rxe` runs the CRC over the packet a second time, without a
/// mask, and drops a FLUSH with the ICRC of the specification. A kernel 6.12 dropped 100 of 100
/// such packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FlushIcrc {
    /// The ICRC of `rdma_rxe`, the only known implementation of FLUSH.
    #[default]
    Rxe,
    /// The ICRC of the specification.
    Standard,
}

/// The result of verifying a received ICRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IcrcVerdict {
    /// The ICRC is correct for the expected identification: 0, or the segment's index. IPv6 always
    /// has 0. The check is as strong as a CRC-32.
    Exact {
        /// The IPv4 identification.
        identification: u16,
    },
    /// The ICRC is correct if the sender used this identification. A damaged packet passes with
    /// probability 2^-16.
    Solved {
        /// The IPv4 identification.
        identification: u16,
    },
    /// The ICRC is wrong.
    Bad,
}

impl IcrcSeed {
    /// Returns the seed for packets from `src` and `src_port` to `dst` and `dst_port`. Returns
    /// `None` if the addresses have different IP versions.
    ///
    /// On the wire `dst_port` is [`crate::ROCE_PORT`].
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

    /// Returns the same seed, but with this ICRC for FLUSH packets that [`append`](Self::append)
    /// completes.
    #[must_use]
    pub const fn with_flush(mut self, flush: FlushIcrc) -> Self {
        self.flush = flush;
        self
    }

    /// Returns the ICRC of a packet with this IPv4 identification and DF flag. IPv6 ignores both.
    ///
    /// `packet` extends from the BTH to the pad, without the ICRC. For a packet that is too long
    /// for UDP the result is meaningless.
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

    /// Returns the same for the fixed length of an acknowledgement, with precomputed tables.
    #[inline]
    fn icrc_of_ack(&self, identification: u16, dont_fragment: bool, packet: &[u8; ACK_LEN]) -> u32 {
        // The CRC register is kept complemented. The first four bytes are XORed with the register.
        let register = (!self.register(identification, dont_fragment, packet)).to_le_bytes();
        let mut end = 0;
        for (place, (table, byte)) in ACK_BYTES.iter().zip(packet).enumerate() {
            let met = register.get(place).copied().unwrap_or(0);
            end ^= table[usize::from(byte ^ met)];
        }
        !end
    }

    /// Returns the ICRC that `rdma_rxe` computes for a FLUSH ([`FlushIcrc::Rxe`]).
    #[must_use]
    #[cold]
    pub fn rxe_flush_icrc(&self, identification: u16, dont_fragment: bool, packet: &[u8]) -> u32 {
        let mut hasher = self.hasher(identification, dont_fragment, packet);
        hasher.update(packet);
        hasher.finalize()
    }

    /// Returns the register before `packet`.
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

    /// Computes the ICRC of the packet that ends at `end` in `buf`, with DF set, and writes the
    /// ICRC there. Returns the length including the ICRC, or `None` if `buf` has no space for the
    /// ICRC.
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

    /// Verifies the ICRC of a received packet. `segment` is the index of the packet in a GRO
    /// super-packet, or 0 for a single packet. DF is assumed to be set.
    ///
    /// A strict receiver accepts only [`IcrcVerdict::Exact`]. A receiver on a UDP socket must also
    /// accept [`IcrcVerdict::Solved`].
    #[must_use]
    #[inline]
    pub fn verify(&self, solver: &mut IcrcSolver, packet: &[u8], segment: u16) -> IcrcVerdict {
        let Some((covered, &received)) = packet.split_last_chunk::<ICRC_LEN>() else {
            return IcrcVerdict::Bad;
        };
        let received = u32::from_le_bytes(received);
        // Usually the identification equals the segment's index, and solving is not necessary.
        let expected = if self.ipv4 { segment } else { 0 };
        let difference = self.icrc(expected, true, covered) ^ received;
        let verdict = self.judge(solver, difference, covered.len(), expected);
        if !matches!(verdict, IcrcVerdict::Exact { .. }) && is_flush(covered) {
            let difference = self.rxe_flush_icrc(expected, true, covered) ^ received;
            let of_rxe = self.judge(solver, difference, 2 * covered.len(), expected);
            // With probability 2^-16, an ICRC of rdma_rxe also fits the specification's ICRC with a
            // wrong identification.
            if verdict == IcrcVerdict::Bad || matches!(of_rxe, IcrcVerdict::Exact { .. }) {
                return of_rxe;
            }
        }
        verdict
    }

    /// Changes the ICRC of `packet` as if its sender had used the addresses and ports of `to`
    /// instead of these. A wrong ICRC stays wrong.
    ///
    /// A CRC is linear: the difference between the ICRCs of two packets of one length depends only
    /// on the difference between the packets. So any identification serves.
    pub fn translate(&self, to: &Self, packet: &mut [u8]) {
        let Some((covered, icrc)) = packet.split_last_chunk_mut::<ICRC_LEN>() else { return };
        let received = u32::from_le_bytes(*icrc);
        let mut difference = self.icrc(0, true, covered) ^ to.icrc(0, true, covered);
        if is_flush(covered) {
            let from_plain = self.icrc(0, true, covered) ^ received;
            let solver = &mut IcrcSolver::new();
            if self.judge(solver, from_plain, covered.len(), 0) == IcrcVerdict::Bad {
                let of_rxe = |seed: &Self| seed.rxe_flush_icrc(0, true, covered);
                difference = of_rxe(self) ^ of_rxe(to);
            }
        }
        *icrc = (received ^ difference).to_le_bytes();
    }

    /// Judges an ICRC.
    ///
    /// `difference` is the XOR of the received ICRC and the ICRC for identification `expected`.
    /// `len` is the number of bytes after the UDP header that the CRC covered.
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
        // The CRC is linear, so the solution is the XOR of the identification and the expected one.
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

/// The number of entries of an [`IcrcSolver`]. Packet lengths are multiples of four, and
/// neighbouring lengths use different entries.
const SOLVER_ENTRIES: usize = 64;

/// Finds the identification that explains an ICRC.
///
/// The solver caches constants for 64 packet lengths (5 KiB). A receiving thread needs one solver
/// for all peers, because the constants do not depend on a peer. If the system has no memory for
/// the cache, the solver computes the constants for each packet.
#[derive(Clone, Debug)]
pub struct IcrcSolver {
    entries: Option<Box<[SolverEntry; SOLVER_ENTRIES]>>,
}

#[derive(Clone, Copy, Debug)]
struct SolverEntry {
    /// Length of the packet without the ICRC. `usize::MAX` marks an unused entry.
    len: usize,
    /// The products of x^-(32+8n) and every polynomial of degree below 4.
    multiples: [u32; 16],
}

impl Default for IcrcSolver {
    fn default() -> Self {
        Self::new()
    }
}

impl IcrcSolver {
    /// Returns a solver with an empty cache.
    #[must_use]
    pub fn new() -> Self {
        let mut entries = Vec::new();
        if entries.try_reserve_exact(SOLVER_ENTRIES).is_ok() {
            entries.resize(SOLVER_ENTRIES, SolverEntry { len: usize::MAX, multiples: [0; 16] });
        }
        Self { entries: entries.into_boxed_slice().try_into().ok() }
    }

    /// Returns the only identification whose image is `difference`, or `None` if there is none.
    ///
    /// `difference` is the received ICRC XOR the ICRC for identification 0, and `len` is the length
    /// of the packet without the ICRC. If the ICRC was computed for another identification, the
    /// result is the XOR of both identifications.
    #[must_use]
    #[inline]
    pub fn solve(&mut self, difference: u32, len: usize) -> Option<u16> {
        let pulled_back = match &mut self.entries {
            Some(entries) => {
                let entry = &mut entries[(len / 4) % SOLVER_ENTRIES];
                if entry.len != len {
                    *entry = SolverEntry::new(len);
                }
                entry.times(difference)
            }
            None => SolverEntry::new(len).times(difference),
        };
        // A degree below 16 means the top half of the register. The first byte on the wire holds
        // the higher powers.
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

    /// Multiplies the constant by `a`, four coefficients at a time (Horner's method).
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

/// The reduction of the four coefficients that a multiplication by x^4 shifts out.
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
