//! Copies between packets and the scatter-gather lists of a work request.

use urxe_memory::{Access, AccessError, Fault, PdId, Pins};

use super::work_request::Sge;

/// Why a local buffer could not be used: the completion status is "local protection error".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LocalFault {
    /// Key, protection domain, bounds or right.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A page that is not there (on-demand regions).
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The list is shorter than what was to be copied.
    #[error("the scatter-gather list ends too early")]
    TooShort,
}

/// Copies `to.len()` bytes of the list, from byte `offset` on, into a packet.
pub(crate) fn gather(
    pins: &mut Pins<'_>,
    pd: PdId,
    sges: &[Sge],
    offset: u64,
    to: &mut [u8],
) -> Result<(), LocalFault> {
    let mut done = 0;
    each_piece(sges, offset, to.len(), |sge, at, len| {
        let pin = pins.access(sge.lkey.0, pd, Access::empty(), at, len as u64)?;
        pin.read(at, &mut to[done..done + len])?;
        done += len;
        Ok(())
    })
}

/// Copies a packet's payload into the list, from byte `offset` on, in order, the last byte last.
pub(crate) fn scatter(
    pins: &mut Pins<'_>,
    pd: PdId,
    sges: &[Sge],
    offset: u64,
    from: &[u8],
) -> Result<(), LocalFault> {
    let mut done = 0;
    each_piece(sges, offset, from.len(), |sge, at, len| {
        let pin = pins.access(sge.lkey.0, pd, Access::LOCAL_WRITE, at, len as u64)?;
        pin.write(at, &from[done..done + len])?;
        done += len;
        Ok(())
    })
}

/// Checks that the whole list may be used with `need`, as a responder does before it takes a
/// message.
pub(crate) fn check(
    pins: &mut Pins<'_>,
    pd: PdId,
    sges: &[Sge],
    need: Access,
) -> Result<(), LocalFault> {
    for sge in sges.iter().filter(|sge| sge.length != 0) {
        pins.access(sge.lkey.0, pd, need, sge.addr, u64::from(sge.length))?;
    }
    Ok(())
}

fn each_piece(
    sges: &[Sge],
    mut offset: u64,
    mut left: usize,
    mut piece: impl FnMut(&Sge, u64, usize) -> Result<(), LocalFault>,
) -> Result<(), LocalFault> {
    for sge in sges {
        if left == 0 {
            return Ok(());
        }
        let length = u64::from(sge.length);
        if offset >= length {
            offset -= length;
            continue;
        }
        let len = left.min((length - offset) as usize);
        piece(sge, sge.addr.wrapping_add(offset), len)?;
        offset = 0;
        left -= len;
    }
    if left == 0 { Ok(()) } else { Err(LocalFault::TooShort) }
}
