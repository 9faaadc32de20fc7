//! Management datagrams of communication management (IBTA vol. 1, chapter 12): how two programs agree on a connection.
//!
//! A MAD is the payload of a UD SEND ONLY from queue pair 1 to queue pair 1 with the Q_Key
//! [`QKey::GSI`](crate::QKey::GSI): 24 bytes of [`MadHeader`], 232 of the message that its attribute names.
mod error;
mod header;
mod id;

pub use error::MadError;
pub use header::{Attribute, MadHeader};
pub use id::{CommId, Guid, PortSpace, ServiceId, TransactionId};

/// Bytes of a MAD.
pub const MAD_LEN: usize = 256;

/// `BaseVersion` of every MAD.
pub const BASE_VERSION: u8 = 1;
/// The management class of communication management.
pub const CM_CLASS: u8 = 0x07;
/// Its version.
pub const CM_CLASS_VERSION: u8 = 2;
/// The only method of communication management: answers are sends, too.
pub const METHOD_SEND: u8 = 0x03;

/// The ids of a MAD, for who only steers it. Where they stand is the same in every message but SIDR's, which have
/// a request id instead of a communication id of each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MadIds {
    /// Which message it is.
    pub attribute: Attribute,
    /// Its transaction.
    pub tid: TransactionId,
    /// The sender's communication id; in a SIDR_REQ its request id; [`CommId::NONE`] in a SIDR_REP.
    pub sender: CommId,
    /// The receiver's communication id; in a SIDR_REP the request id of the receiver; [`CommId::NONE`] in a REQ and
    /// a SIDR_REQ, and in a REJ of who does not know it.
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
