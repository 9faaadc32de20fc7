//! Address handles, the destinations of datagrams.
//!
//! [`ProtectionDomain::address_handle`] makes a handle from a GID, [`ProtectionDomain::answer_to`]
//! from a received datagram. Each send request names its handle
//! ([`SendRequest::to`](crate::SendRequest::to)).

use std::fmt;

use urxe_stack::device::ah::{AhFromWcError, CreateAhError};
use urxe_stack::qp::attr::AddressVector;
use urxe_stack::qp::work_request::AhHandle;
use urxe_wire::Gid;

use crate::Completion;
use crate::device::Device;
use crate::pd::ProtectionDomain;

/// The number of bytes in front of every datagram in its receive buffer: the network header of the
/// datagram. A receive for messages of up to n bytes needs n + 40 bytes.
pub const GRH_LEN: usize = urxe_wire::Grh::LEN;

urxe_stack::errors! {
    /// The reason why a datagram cannot be answered.
    #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum AnswerError {
        /// The completion or the network header does not identify the sender.
        #[error(transparent)] Source(#[from] AhFromWcError),
        /// The device refuses to create the handle.
        #[error(transparent)] Create(#[from] CreateAhError),
    }
}

/// An address handle (`struct ibv_ah`): the path to a host or a multicast group.
///
/// Dropping the handle destroys it. Messages that are still queued for it then fail with
/// `LocQpOpErr`.
///
/// ```
/// use urxe::{AddressHandle, AddressVector, CreateAhError, Gid, sim::Fabric};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let fabric = Fabric::new(1);
/// let pd = fabric.device([10, 0, 0, 1])?.alloc_pd()?;
/// let peer = Gid::from_ip([10, 0, 0, 2].into());
/// let ah: AddressHandle = pd.address_handle(peer)?;
/// assert_eq!(ah.query().hop_limit, 64);
/// // The same with all attributes.
/// let attr = AddressVector { traffic_class: 8, ..ah.query() };
/// assert_eq!(pd.address_handle_with(&attr)?.query().dgid, peer);
/// // The device has one port.
/// let attr = AddressVector { port_num: 2, ..attr };
/// let error: CreateAhError = pd.address_handle_with(&attr).unwrap_err();
/// assert_eq!(error, CreateAhError::Port { given: 2 });
/// # Ok(())
/// # }
/// ```
pub struct AddressHandle {
    pd: ProtectionDomain,
    handle: AhHandle,
}

impl AddressHandle {
    /// Returns the protection domain of the handle.
    #[must_use]
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// Returns the attributes of the handle (`rdma_query_ah` of the kernel).
    #[must_use]
    pub fn query(&self) -> AddressVector {
        // The handle exists as long as this value, so the query cannot fail.
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
    /// Creates an address handle for the host or multicast group with this GID. The source is the
    /// device's default GID, the hop limit 64.
    ///
    /// # Errors
    /// Fails with [`CreateAhError`] if the device cannot reach the GID.
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

    /// Creates an address handle from all its attributes (`ibv_create_ah`).
    ///
    /// # Errors
    /// Fails with [`CreateAhError`], which names the attribute and the values that are allowed.
    pub fn address_handle_with(
        &self,
        attr: &AddressVector,
    ) -> Result<AddressHandle, CreateAhError> {
        let handle = self.device().core().create_ah(self.id(), attr)?;
        Ok(AddressHandle { pd: self.clone(), handle })
    }

    /// Creates an address handle for the sender of a datagram (`ibv_create_ah_from_wc`).
    ///
    /// `grh` is the first [`GRH_LEN`] bytes of the receive buffer. The sender's queue pair number
    /// is in the completion ([`Completion::src_qp`]).
    ///
    /// ```
    /// use urxe::{AddressHandle, AhFromWcError, AnswerError, Completion, sim::Fabric};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pd = Fabric::new(1).device([10, 0, 0, 1])?.alloc_pd()?;
    /// // Only the completion of a received datagram names a sender.
    /// let answer: Result<AddressHandle, AnswerError> = pd.answer_to(&Completion::default(), &[]);
    /// assert_eq!(answer.unwrap_err(), AnswerError::Source(AhFromWcError::NoGrh));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails with [`AnswerError`] if the completion and the header do not identify a sender.
    pub fn answer_to(
        &self,
        completion: &Completion,
        grh: &[u8],
    ) -> Result<AddressHandle, AnswerError> {
        let attr = self.device().core().ah_from_wc(completion, grh)?;
        Ok(self.address_handle_with(&attr)?)
    }
}
