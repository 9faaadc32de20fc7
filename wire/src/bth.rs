//! Base transport header (IBTA vol. 1, 9.2).

use std::fmt;

use crate::bytes::{at, be16, head, put};
use crate::error::{Header, ParseError};
use crate::{Opcode, PKey, Psn, Qpn};

/// Base transport header (IBTA vol. 1, 9.2): the first twelve bytes of every packet.
///
/// ```text
///  0      1                 2          4                   5        8                 9       12
/// +------+-----------------+----------+-------------------+--------+-----------------+-------+
/// |opcode|SE|M|pad|version |  P_Key   |FECN|BECN|reserved | dest QP| A |   reserved  |  PSN  |
/// |  8   | 1|1| 2 |   4    |   16     |  1 |  1 |   6     |   24   | 1 |      7      |  24   |
/// +------+-----------------+----------+-------------------+--------+-----------------+-------+
/// ```
///
/// Reserved bits are sent as zero and ignored on receipt.
///
/// ```
/// use urxe_wire::{Bth, Opcode, Psn, Qpn};
///
/// let mut header = Bth::new(Opcode::RcSendOnly, Qpn::masked(0x11), Psn::new(1234));
/// header.ack_req = true;
/// let mut bytes = [0; Bth::LEN];
/// header.emit(&mut bytes);
/// assert_eq!(bytes, [4, 0, 0xff, 0xff, 0, 0, 0, 0x11, 0x80, 0, 4, 0xd2]);
/// assert_eq!(Bth::parse(&bytes)?, header);
/// # Ok::<(), urxe_wire::ParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bth {
    /// The opcode, which defines the kind of packet.
    pub opcode: Opcode,
    /// SE: the receiver's completion raises a solicited event.
    pub solicited: bool,
    /// M, MigReq: path migration state. `rdma_rxe` sends 0, some adapters expect 1.
    pub mig_req: bool,
    /// Number of pad bytes (0 ..= 3) after the payload, which make the payload a multiple of four.
    /// Only the low two bits are sent.
    pub pad_count: u8,
    /// TVer, 4 bits. Only version 0 is defined.
    pub version: u8,
    /// Partition key.
    pub pkey: PKey,
    /// Forward explicit congestion notification.
    pub fecn: bool,
    /// Backward explicit congestion notification.
    pub becn: bool,
    /// Destination queue pair.
    pub dest_qp: Qpn,
    /// A: the sender requests an acknowledgement.
    pub ack_req: bool,
    /// Packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// The length of the header on the wire, in bytes.
    pub const LEN: usize = Header::Bth.wire_len();

    /// Returns a header with the default partition and all flags off.
    #[must_use]
    pub const fn new(opcode: Opcode, dest_qp: Qpn, psn: Psn) -> Self {
        Self {
            opcode,
            solicited: false,
            mig_req: false,
            pad_count: 0,
            version: 0,
            pkey: PKey::DEFAULT,
            fecn: false,
            becn: false,
            dest_qp,
            ack_req: false,
            psn,
        }
    }

    /// Reads the header at the start of `bytes`. The caller must check the version.
    ///
    /// # Errors
    /// - [`ParseError::ShortHeader`]: `bytes` is shorter than [`LEN`](Self::LEN).
    /// - [`ParseError::UnknownOpcode`], [`ParseError::ReliableDatagram`]: the opcode is not
    ///   supported.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let b = head(bytes, Header::Bth)?;
        Ok(Self::read(Opcode::try_from(b[0])?, b))
    }

    /// Returns the destination queue pair of `packet`, or `None` if the packet ends before that
    /// field.
    ///
    /// Nothing else of the packet is checked.
    #[inline]
    #[must_use]
    pub fn dest_qp_of(packet: &[u8]) -> Option<Qpn> {
        Some(Qpn::from_be_bytes(*packet.get(5..8)?.first_chunk()?))
    }

    /// Reads all fields except the opcode.
    pub(crate) fn read(opcode: Opcode, b: &[u8; Self::LEN]) -> Self {
        Self {
            opcode,
            solicited: b[1] & 0x80 != 0,
            mig_req: b[1] & 0x40 != 0,
            pad_count: (b[1] >> 4) & 3,
            version: b[1] & 0x0f,
            pkey: PKey(be16(b, 2)),
            fecn: b[4] & 0x80 != 0,
            becn: b[4] & 0x40 != 0,
            dest_qp: Qpn::from_be_bytes(at(b, 5)),
            ack_req: b[8] & 0x80 != 0,
            psn: Psn::from_be_bytes(at(b, 9)),
        }
    }

    /// Writes the header to `buf`.
    #[inline]
    pub fn emit(&self, buf: &mut [u8; Self::LEN]) {
        buf[0] = self.opcode.byte();
        buf[1] = u8::from(self.solicited) << 7
            | u8::from(self.mig_req) << 6
            | (self.pad_count & 3) << 4
            | (self.version & 0x0f);
        put(buf, 2, self.pkey.0.to_be_bytes());
        buf[4] = u8::from(self.fecn) << 7 | u8::from(self.becn) << 6;
        put(buf, 5, self.dest_qp.to_be_bytes());
        buf[8] = u8::from(self.ack_req) << 7;
        put(buf, 9, self.psn.to_be_bytes());
    }
}

impl fmt::Display for Bth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} qp {} psn {}", self.opcode, self.dest_qp, self.psn)?;
        for (on, word) in [
            (self.ack_req, " ack"),
            (self.solicited, " se"),
            (self.mig_req, " migreq"),
            (self.fecn, " fecn"),
            (self.becn, " becn"),
        ] {
            if on {
                f.write_str(word)?;
            }
        }
        if self.pkey != PKey::DEFAULT {
            write!(f, " pkey {}", self.pkey)?;
        }
        if self.version != 0 {
            write!(f, " tver {}", self.version)?;
        }
        Ok(())
    }
}
