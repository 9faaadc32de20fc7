//! Finds the process that must handle a MAD, if several processes share an address and thus its
//! QP1.
//!
//! A process with a shared address puts its slot into the upper bits of every communication id,
//! request id and transaction id that it creates. A reply repeats the id, which identifies the
//! process. A request names a service, on which one of the processes listens.

use super::{Attribute, BASE_VERSION, CM_CLASS, CommId, MAD_LEN, MadError, MadIds, ServiceId};
use crate::bytes::be32;

/// The bit of the method that marks a response (IBTA 13.4.5).
pub const RESPONSE_BIT: u8 = 0x80;
/// Position of the slot in a communication id and in the upper half of a transaction id.
pub const ID_SLOT_SHIFT: u32 = 26;

/// The process, among those that share a QP1, that must handle a MAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The process that listens on this service.
    Service(ServiceId),
    /// The process with this slot, whose identifier the MAD contains.
    Slot(u8),
    /// Any process: the MAD is a request of another class than communication management.
    Anyone,
    /// All processes. A sender that gives up without a reply knows only its own identifier. At most
    /// one process recognizes this identifier, and no process replies.
    Everyone,
}

impl Destination {
    /// Returns the process that must handle `mad`.
    ///
    /// # Errors
    /// Fails with [`MadError`] if `mad` is not a MAD, or has the class of communication management
    /// without being one of its messages.
    pub fn of(mad: &[u8]) -> Result<Self, MadError> {
        if mad.len() != MAD_LEN {
            return Err(MadError::Length { have: mad.len() });
        }
        if mad[0] != BASE_VERSION {
            return Err(MadError::BaseVersion(mad[0]));
        }
        if mad[1] != CM_CLASS {
            // The upper half of a transaction id has the format of a communication id.
            let slot = CommId(be32(mad, 8)).slot();
            return Ok(if mad[3] & RESPONSE_BIT != 0 { Self::Slot(slot) } else { Self::Anyone });
        }
        let ids = MadIds::parse(mad)?;
        Ok(match (ids.service_id, ids.attribute) {
            (Some(service), _) => Self::Service(service),
            (None, Attribute::Rej) if ids.receiver == CommId::NONE => Self::Everyone,
            (None, _) => Self::Slot(ids.receiver.slot()),
        })
    }
}

impl CommId {
    /// Returns an id of the process with `slot`, with the lower bits of `number`.
    #[must_use]
    pub const fn with_slot(slot: u8, number: u32) -> Self {
        Self((slot as u32) << ID_SLOT_SHIFT | number & ((1 << ID_SLOT_SHIFT) - 1))
    }

    /// Returns the slot of the process that created the id.
    #[must_use]
    pub const fn slot(self) -> u8 {
        (self.0 >> ID_SLOT_SHIFT) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::super::METHOD_SEND;
    use super::*;

    fn mad(class: u8, method: u8, attribute: u16) -> [u8; MAD_LEN] {
        let mut bytes = [0xa5; MAD_LEN];
        bytes[..4].copy_from_slice(&[1, class, 2, method]);
        bytes[8..16].copy_from_slice(&0x1c00_0001_0000_0002_u64.to_be_bytes());
        bytes[16..18].copy_from_slice(&attribute.to_be_bytes());
        bytes[24..28].copy_from_slice(&CommId::with_slot(9, 77).0.to_be_bytes());
        bytes[28..32].copy_from_slice(&CommId::with_slot(63, u32::MAX).0.to_be_bytes());
        bytes[32..40].copy_from_slice(&0x0106_1234_u64.to_be_bytes());
        bytes
    }

    #[test]
    fn requests_go_by_service_and_everything_else_by_the_recipients_id() {
        for attribute in Attribute::ALL {
            let expected = match attribute {
                Attribute::Req | Attribute::SidrReq => Destination::Service(ServiceId(0x0106_1234)),
                Attribute::SidrRep => Destination::Slot(9),
                _ => Destination::Slot(63),
            };
            let bytes = mad(CM_CLASS, METHOD_SEND, attribute.id());
            assert_eq!(Destination::of(&bytes), Ok(expected), "{attribute}");
        }
        // Responses of another class, such as performance management, carry the transaction id.
        assert_eq!(Destination::of(&mad(4, 0x81, 1)), Ok(Destination::Slot(7)));
        assert_eq!(Destination::of(&mad(4, 0x01, 1)), Ok(Destination::Anyone));
    }

    #[test]
    fn a_rej_that_names_no_receiver_is_for_everyone() {
        for attribute in Attribute::ALL {
            let mut bytes = mad(CM_CLASS, METHOD_SEND, attribute.id());
            bytes[28..32].fill(0);
            let is_for_everyone = Destination::of(&bytes) == Ok(Destination::Everyone);
            assert_eq!(is_for_everyone, attribute == Attribute::Rej, "{attribute}");
        }
    }

    #[test]
    fn bytes_that_are_not_a_mad_have_no_destination() {
        let bytes = mad(CM_CLASS, METHOD_SEND, 0x10);
        for have in [0, 1, 24, 255] {
            assert_eq!(Destination::of(&bytes[..have]), Err(MadError::Length { have }));
        }
        assert_eq!(Destination::of(&[0; 256]), Err(MadError::BaseVersion(0)));
        assert_eq!(
            Destination::of(&mad(CM_CLASS, METHOD_SEND, 0x99)),
            Err(MadError::Attribute(0x99))
        );
    }

    #[test]
    fn an_id_keeps_its_slot() {
        for slot in 0..64 {
            assert_eq!(CommId::with_slot(slot, 0xdead_beef).slot(), slot);
            assert_eq!(
                CommId::with_slot(slot, 0xdead_beef).0 & 0x3ff_ffff,
                0xdead_beef & 0x3ff_ffff
            );
        }
    }
}
