//! Invalidation of a key by a work request or by the peer (IBTA vol. 1, 10.6.5, 10.6.7.1).
//!
//! Only type 2 windows and fast-registration regions can be invalidated. An ordinary region keeps
//! its key until the deregistration, as in the kernel's `rdma_rxe` (`rxe_mr.c`,
//! `rxe_invalidate_mr`; `rxe_mw.c`, `rxe_invalidate_mw`).

use urxe_wire::{Qpn, Rkey};

use super::keys::is_same_object;
use super::slot::SlotContent;
use super::{Accessor, Memory, MwType, PdId};

urxe_types::errors! {
    /// The reason why a key was not invalidated.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum InvalidateError {
        #[error("no region or window has the key {rkey}")]
        UnknownKey { rkey: Rkey } = EINVAL,
        /// The region or window exists, but its key has changed, or it is not valid.
        #[error("the key {rkey} is stale: the region or window has another key by now, or none")]
        Stale { rkey: Rkey } = EINVAL,
        #[error("the key {rkey} belongs to {owner:?}, not to {given:?}")]
        WrongPd { rkey: Rkey, given: PdId, owner: PdId } = EACCES,
        /// Another queue pair bound the type 2 window of this key.
        #[error("the key {rkey} belongs to a window that another queue pair bound, {owner}")]
        WrongQp { rkey: Rkey, owner: Qpn } = EACCES,
        #[error("the key {rkey} belongs to an ordinary region; only windows and fast-registration \
                 regions can be invalidated")]
        OrdinaryRegion { rkey: Rkey } = EINVAL,
        /// The key belongs to a type 1 window (o10-37.2.26).
        #[error("the key {rkey} belongs to a type 1 window: unbind it by a bind of zero bytes")]
        Type1 { rkey: Rkey } = EINVAL,
        #[error("the key {rkey} belongs to a region with {windows} bound windows: unbind them \
                 first")]
        Bound { rkey: Rkey, windows: u32 } = EBUSY,
    }
}

/// The origin of an invalidation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidator {
    /// A work request of the queue pair itself. The invalidation of an invalid fast-registration
    /// region is no error, as in `rdma_rxe`.
    Local,
    /// The peer, by a SEND with invalidate. The key must be valid.
    Peer,
}

impl Memory {
    /// Invalidates `rkey` for the queue pair `by`. On return, no access by the key is in progress.
    /// The calling thread must not hold a pin.
    ///
    /// # Errors
    /// [`InvalidateError`]; nothing changed.
    pub fn invalidate(
        &self,
        rkey: Rkey,
        by: impl Into<Accessor>,
        who: Invalidator,
    ) -> Result<(), InvalidateError> {
        let by = by.into();
        let key = rkey.0;
        let slot = self.slot(self.index(rkey.0)).ok_or(InvalidateError::UnknownKey { rkey })?;
        match &mut *slot.content() {
            SlotContent::Vacant => Err(InvalidateError::UnknownKey { rkey }),
            SlotContent::Region(_) if !slot.answers_to(key) => {
                Err(InvalidateError::UnknownKey { rkey })
            }
            SlotContent::Region(_) => match slot.region().pd {
                owner if owner != by.pd => {
                    Err(InvalidateError::WrongPd { rkey, given: by.pd, owner })
                }
                _ => Err(InvalidateError::OrdinaryRegion { rkey }),
            },
            SlotContent::Fast(fast) if !is_same_object(fast.key, key) => {
                Err(InvalidateError::UnknownKey { rkey })
            }
            SlotContent::Fast(fast) if fast.key != key => Err(InvalidateError::Stale { rkey }),
            SlotContent::Fast(fast) if fast.pd != by.pd => {
                Err(InvalidateError::WrongPd { rkey, given: by.pd, owner: fast.pd })
            }
            SlotContent::Fast(fast) => match (fast.valid, who, slot.windows()) {
                (false, Invalidator::Peer, _) => Err(InvalidateError::Stale { rkey }),
                (false, Invalidator::Local, _) => Ok(()),
                (true, _, 0) => {
                    slot.unpublish_and_drain(key);
                    fast.valid = false;
                    Ok(())
                }
                (true, _, windows) => Err(InvalidateError::Bound { rkey, windows }),
            },
            SlotContent::Window(window) if !is_same_object(window.key, key) => {
                Err(InvalidateError::UnknownKey { rkey })
            }
            SlotContent::Window(window) if window.key != key => {
                Err(InvalidateError::Stale { rkey })
            }
            SlotContent::Window(window) if window.pd != by.pd => {
                Err(InvalidateError::WrongPd { rkey, given: by.pd, owner: window.pd })
            }
            SlotContent::Window(window) if window.kind == MwType::Type1 => {
                Err(InvalidateError::Type1 { rkey })
            }
            SlotContent::Window(window) => match window.bound.and_then(|bound| bound.qpn) {
                None => Err(InvalidateError::Stale { rkey }),
                Some(owner) if by.qpn != Some(owner) => {
                    Err(InvalidateError::WrongQp { rkey, owner })
                }
                Some(_) => {
                    self.unbind(slot, window);
                    Ok(())
                }
            },
        }
    }
}
