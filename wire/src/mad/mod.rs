//! Management datagrams of communication management (IBTA vol. 1, chapter 12): how two programs
//! agree on a connection.
//!
//! A MAD is the payload of a UD SEND ONLY from queue pair 1 to queue pair 1 with the Q_Key
//! [`QKey::GSI`](crate::QKey::GSI): 24 bytes of [`MadHeader`], 232 of the message that its
//! attribute names.
//!
//! ```text
//!  active                      passive
//!    │ REQ ──────────────────────> │   may answer MRA first, when it takes longer, or REJ
//!    │ <────────────────────── REP │   RTR
//!    │ RTU ──────────────────────> │   RTS
//!    │ DREQ ─────────────────────> │   either side
//!    │ <───────────────────── DREP │
//! ```
//!
//! | file | subject |
//! |---|---|
//! | `header`, `id` | the header, and why bytes are no MAD; communication, transaction and service ids |
//! | `message` | the table of all messages and their fields |
//! | `field`, `code` | what kinds of field there are; reasons and statuses |
//! | `cma` | the addresses in the private data of the RDMA IP CM service |
//! | `display` | messages for people |
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

/// Bytes of a MAD.
pub const MAD_LEN: usize = 256;
/// Bytes of a message, behind the header.
pub const MESSAGE_LEN: usize = MAD_LEN - MadHeader::LEN;

/// `BaseVersion` of every MAD.
pub const BASE_VERSION: u8 = 1;
/// The management class of communication management.
pub const CM_CLASS: u8 = 0x07;
/// Its version.
pub const CM_CLASS_VERSION: u8 = 2;
/// The only method of communication management: answers are sends, too.
pub const METHOD_SEND: u8 = 0x03;

/// A MAD of communication management. One that exists can be emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mad {
    /// Ties an answer to its question.
    pub tid: TransactionId,
    /// In a REQ and a REP the options of enhanced connection establishment, else 0.
    pub attribute_modifier: u32,
    /// The message.
    pub message: CmMessage,
}

impl Mad {
    /// A MAD without options.
    #[must_use]
    pub fn new(tid: TransactionId, message: impl Into<CmMessage>) -> Self {
        Self { tid, attribute_modifier: 0, message: message.into() }
    }

    /// Reads a whole MAD.
    ///
    /// # Errors
    /// [`MadError`].
    pub fn parse(mad: &[u8]) -> Result<Self, MadError> {
        let MadHeader { tid, attribute, attribute_modifier, .. } = MadHeader::parse(mad)?;
        let body = mad.last_chunk().ok_or(MadError::Length { have: mad.len() })?;
        Ok(Self { tid, attribute_modifier, message: CmMessage::parse(attribute, body)? })
    }

    /// Writes the MAD, reserved bits as zero.
    pub fn emit(&self, buf: &mut [u8; MAD_LEN]) {
        let (header, body) = buf.split_at_mut(MadHeader::LEN);
        if let (Some(header), Some(body)) = (header.first_chunk_mut(), body.first_chunk_mut()) {
            let attribute_modifier = self.attribute_modifier;
            MadHeader { attribute_modifier, ..MadHeader::new(self.message.attribute(), self.tid) }
                .emit(header);
            self.message.emit(body);
        }
    }

    /// The bytes of the MAD.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; MAD_LEN] {
        let mut bytes = [0; MAD_LEN];
        self.emit(&mut bytes);
        bytes
    }
}

/// The ids of a MAD, for who only steers it. Where they stand is the same in every message but
/// SIDR's, which have a request id instead of a communication id of each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MadIds {
    /// Which message it is.
    pub attribute: Attribute,
    /// Its transaction.
    pub tid: TransactionId,
    /// The sender's communication id; in a SIDR_REQ its request id; [`CommId::NONE`] in a SIDR_REP.
    pub sender: CommId,
    /// The receiver's communication id; in a SIDR_REP the request id of the receiver;
    /// [`CommId::NONE`] in a REQ and a SIDR_REQ, and in a REJ of who does not know it.
    pub receiver: CommId,
    /// What is asked for, in a REQ and a SIDR_REQ.
    pub service_id: Option<ServiceId>,
}

impl MadIds {
    /// Reads the ids of a whole MAD.
    ///
    /// # Errors
    /// As [`MadHeader::parse`].
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
