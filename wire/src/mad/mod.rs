//! Management datagrams (MADs) of the connection manager (IBTA vol. 1, chapter 12).
//!
//! A MAD is the payload of a UD SEND ONLY from queue pair 1 to queue pair 1 with the Q_Key
//! [`QKey::GSI`](crate::QKey::GSI). It consists of the 24 bytes of a [`MadHeader`] and 232 bytes of
//! a [`CmMessage`].
//!
//! ```text
//!  active                      passive
//!    │ REQ ──────────────────────> │   may send MRA first, if the reply takes longer, or REJ
//!    │ <────────────────────── REP │   RTR
//!    │ RTU ──────────────────────> │   RTS
//!    │ DREQ ─────────────────────> │   either side
//!    │ <───────────────────── DREP │
//! ```
//!
//! | file | subject |
//! |---|---|
//! | `header` | the MAD header, message types and errors |
//! | `id` | communication ids, transaction ids and service ids |
//! | `message` | the table of all messages and their fields |
//! | `field`, `code` | field types; reasons and statuses |
//! | `cma` | the addresses in the private data of the RDMA IP CM service |
//! | `steer` | the receiving process of a MAD |
//! | `display` | messages as text |
mod cma;
mod code;
mod display;
mod field;
mod header;
mod id;
mod message;
mod steer;

pub use cma::{CmaAddresses, CmaError, CmaHeader};
pub use code::{Answered, ApStatus, RejReason, SidrStatus, TransportType};
pub use field::{Bits, InfoLength, MadValue, PrivateData, PrivateDataTooLong, SpreadVendorId};
pub use header::{Attribute, MadError, MadHeader};
pub use id::{CommId, Guid, PortSpace, ServiceId, TransactionId};
pub use message::{Apr, CmMessage, Drep, Dreq, Lap, Mra, Rej, Rep, Req, Rtu, SidrRep, SidrReq};
pub use steer::{Destination, ID_SLOT_SHIFT, RESPONSE_BIT};

/// The length of a MAD in bytes.
pub const MAD_LEN: usize = 256;
/// The length of a message after the header, in bytes.
pub const MESSAGE_LEN: usize = MAD_LEN - MadHeader::LEN;

/// `BaseVersion` of every MAD.
pub const BASE_VERSION: u8 = 1;
/// The management class of communication management.
pub const CM_CLASS: u8 = 0x07;
/// The class version of communication management.
pub const CM_CLASS_VERSION: u8 = 2;
/// The method Send, the only one of communication management. Replies use it as well.
pub const METHOD_SEND: u8 = 0x03;

/// A MAD of the connection manager. Every value of this type can be emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mad {
    /// Transaction id, which a reply repeats.
    pub tid: TransactionId,
    /// Options of enhanced connection establishment in a REQ or REP, otherwise 0.
    pub attribute_modifier: u32,
    /// The message.
    pub message: CmMessage,
}

impl Mad {
    /// Returns a MAD without options.
    #[must_use]
    pub fn new(tid: TransactionId, message: impl Into<CmMessage>) -> Self {
        Self { tid, attribute_modifier: 0, message: message.into() }
    }

    /// Reads a whole MAD.
    ///
    /// # Errors
    /// Fails with [`MadError`] if the header is not valid, or additional information is too long.
    pub fn parse(mad: &[u8]) -> Result<Self, MadError> {
        let MadHeader { tid, attribute, attribute_modifier, .. } = MadHeader::parse(mad)?;
        let body = mad.last_chunk().ok_or(MadError::Length { have: mad.len() })?;
        Ok(Self { tid, attribute_modifier, message: CmMessage::parse(attribute, body)? })
    }

    /// Writes the MAD to `buf`, with zeros in reserved bits.
    pub fn emit(&self, buf: &mut [u8; MAD_LEN]) {
        let (header, body) = buf.split_at_mut(MadHeader::LEN);
        if let (Some(header), Some(body)) = (header.first_chunk_mut(), body.first_chunk_mut()) {
            let attribute_modifier = self.attribute_modifier;
            MadHeader { attribute_modifier, ..MadHeader::new(self.message.attribute(), self.tid) }
                .emit(header);
            self.message.emit(body);
        }
    }

    /// Returns the bytes of the MAD.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; MAD_LEN] {
        let mut bytes = [0; MAD_LEN];
        self.emit(&mut bytes);
        bytes
    }
}

/// The identifiers of a MAD, for a process that forwards it to the process that must handle it.
///
/// All messages have the same layout of ids, except SIDR_REQ and SIDR_REP. These have a request id
/// instead of the communication ids of both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MadIds {
    /// The message type.
    pub attribute: Attribute,
    /// The transaction id.
    pub tid: TransactionId,
    /// The sender's communication id, or the request id of a SIDR_REQ. [`CommId::NONE`] in a
    /// SIDR_REP.
    pub sender: CommId,
    /// The receiver's communication id, or the receiver's request id in a SIDR_REP.
    /// [`CommId::NONE`] in a REQ and a SIDR_REQ, and in a REJ whose sender does not know the id.
    pub receiver: CommId,
    /// The requested service, in a REQ or SIDR_REQ.
    pub service_id: Option<ServiceId>,
}

impl MadIds {
    /// Reads the ids of a whole MAD.
    ///
    /// # Errors
    /// Fails like [`MadHeader::parse`].
    pub fn parse(mad: &[u8]) -> Result<Self, MadError> {
        use crate::bytes::{be32, be64};
        let MadHeader { attribute, tid, .. } = MadHeader::parse(mad)?;
        let [first, second] = [24, 28].map(|at| CommId(be32(mad, at)));
        let service_id = || Some(ServiceId(be64(mad, 32)));
        let (sender, receiver, service_id) = match attribute {
            Attribute::Req | Attribute::SidrReq => (first, CommId::NONE, service_id()),
            Attribute::SidrRep => (CommId::NONE, first, None),
            _ => (first, second, None),
        };
        Ok(Self { attribute, tid, sender, receiver, service_id })
    }
}
