//! Where datagrams go: made by [`ProtectionDomain::address_handle`] or from a completion, named by
//! each request ([`SendRequest::to`](crate::SendRequest::to)).

use std::fmt;

use urxe_stack::device::ah::{AhFromWcError, CreateAhError};
use urxe_stack::qp::attr::AddressVector;
use urxe_stack::qp::work_request::AhHandle;
use urxe_wire::Gid;

use crate::Completion;
use crate::device::Device;
use crate::pd::ProtectionDomain;

/// Bytes in front of every datagram in its receive buffer: the header that it came with. A receive
/// for messages of up to n bytes has n + 40.
pub const GRH_LEN: usize = urxe_wire::Grh::LEN;

urxe_stack::errors! {
    /// Why there is no way to answer a datagram.
    #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum AnswerError {
        /// The completion or the 40 bytes say nothing about the sender.
        #[error(transparent)] Source(#[from] AhFromWcError),
        /// The handle was not made.
        #[error(transparent)] Create(#[from] CreateAhError),
    }
}

/// An address handle (`struct ibv_ah`): the way to a host or a multicast group. Dropping it
/// destroys it; a message that waits to be sent to it then fails with `LocQpOpErr`.
pub struct AddressHandle {
    pd: ProtectionDomain,
    handle: AhHandle,
}

impl AddressHandle {
    /// Its protection domain.
    #[must_use]
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// What it was made from (`ibv_query_ah` of the kernel).
    #[must_use]
    pub fn query(&self) -> AddressVector {
        // It lives as long as this value, so there is always an answer.
        self.pd.device().core().query_ah(self.handle).unwrap_or_default()
    }

    pub(crate) fn core(&self) -> AhHandle {
        self.handle
    }

    pub(crate) fn device(&self) -> &Device {
        self.pd.device()
    }
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        let device = self.pd.device();
        device.destroy("only this value destroys it", |core| core.destroy_ah(self.handle));
    }
}

impl fmt::Debug for AddressHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressHandle").field("dgid", &self.query().dgid).finish_non_exhaustive()
    }
}

impl ProtectionDomain {
    /// Makes an address handle for the host or multicast group with this GID, from the device's
    /// default address. What is sent to a group crosses up to 64 routers.
    ///
    /// # Errors
    /// [`CreateAhError`].
    pub fn address_handle(&self, dgid: Gid) -> Result<AddressHandle, CreateAhError> {
        self.address_handle_with(&AddressVector {
            dgid,
            is_global: true,
            sgid_index: self.device().default_gid_index(),
            hop_limit: 64,
            port_num: 1,
            ..AddressVector::default()
        })
    }

    /// Makes an address handle from all its attributes (`ibv_create_ah`).
    ///
    /// # Errors
    /// [`CreateAhError`].
    pub fn address_handle_with(
        &self,
        attr: &AddressVector,
    ) -> Result<AddressHandle, CreateAhError> {
        let handle = self.device().core().create_ah(self.id(), attr)?;
        Ok(AddressHandle { pd: self.clone(), handle })
    }

    /// Makes an address handle for the sender of a datagram (`ibv_create_ah_from_wc`). `grh` is
    /// what its receive buffer begins with, [`GRH_LEN`] bytes; the sender's queue pair is in the
    /// completion ([`Completion::src_qp`]).
    ///
    /// # Errors
    /// [`AnswerError`].
    pub fn answer_to(
        &self,
        completion: &Completion,
        grh: &[u8],
    ) -> Result<AddressHandle, AnswerError> {
        let attr = self.device().core().ah_from_wc(completion, grh)?;
        Ok(self.address_handle_with(&attr)?)
    }
}
