//! Requests of awaitable operations. They are smaller than a [`SendRequest`](super::SendRequest),
//! because futures are moved.

use urxe_stack::qp::work_request::{
    Destination, Payload, PostError, SendFlags, SendOp, SendRequest as CoreSend,
};

use super::request::memory_of;
use crate::device::Device;
use crate::memory::RegionSlice;

/// A request to the peer with a completion. Its memory is one slice, or inline bytes, or none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SignaledRequest<'a> {
    pub wr_id: u64,
    pub op: SendOp,
    pub flags: SendFlags,
    /// The caller keeps the region until the request has completed.
    pub slice: Option<RegionSlice<'static>>,
    pub inline: Option<&'a [u8]>,
}

impl SignaledRequest<'_> {
    /// A message without data.
    pub const EMPTY: SignaledRequest<'static> = SignaledRequest {
        wr_id: 0,
        op: SendOp::Send,
        flags: SendFlags::empty(),
        slice: None,
        inline: None,
    };

    /// Returns the request for `device`. Fails if the memory belongs to another device.
    pub fn core_on(&self, device: &Device) -> Result<CoreSend<'_>, PostError> {
        let own = device.identity();
        match self.slice.map(|slice| slice.device).filter(|other| *other != own) {
            Some(other) => Err(memory_of(other, own)),
            None => Ok(self.as_core()),
        }
    }

    pub fn as_core(&self) -> CoreSend<'_> {
        let Self { wr_id, op, flags, slice, inline } = self;
        let (payload, kind) = match (inline, slice) {
            (Some(bytes), _) => (Payload::Inline(std::slice::from_ref(bytes)), SendFlags::INLINE),
            (None, Some(slice)) => {
                (Payload::Sges(std::slice::from_ref(&slice.sge)), SendFlags::empty())
            }
            (None, None) => (Payload::Sges(&[]), SendFlags::empty()),
        };
        let flags = *flags | kind | SendFlags::SIGNALED;
        CoreSend { wr_id: *wr_id, op: *op, to: Destination::Peer, flags, payload }
    }
}
