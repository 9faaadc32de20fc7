//! Copies between packets and the scatter-gather lists of work requests.

use urxe_memory::{Access, AccessError, Fault, PdId, Pins, WriteOnly};

use super::work_request::Sge;
use urxe_wire::Payload;

/// Why a local buffer could not be used. The work request completes with "local protection error".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LocalFault {
    /// The key, the protection domain, the range or the access right is wrong.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A page of the memory is absent, as can happen in on-demand regions.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The list is shorter than the data.
    #[error("the scatter-gather list is shorter than the data")]
    TooShort,
}

/// Copies `to.len()` bytes of the list into a packet, starting at byte `offset` of the list.
pub(crate) fn gather(
    pins: &mut Pins<'_>,
    pd: PdId,
    sges: &[Sge],
    offset: u64,
    to: WriteOnly<'_>,
) -> Result<(), LocalFault> {
    let mut done = 0;
    each_piece(sges, offset, to.len(), |sge, at, len| {
        let pin = pins.access(sge.lkey.0, pd, Access::empty(), at, len as u64)?;
        pin.read(at, to.slice(done..done + len))?;
        done += len;
        Ok(())
    })
}

/// Copies the payload of a packet into the list, starting at byte `offset` of the list. The bytes
/// are written in order; the last byte is written last.
pub(crate) fn scatter<'p>(
    pins: &mut Pins<'_>,
    pd: PdId,
    sges: &[Sge],
    offset: u64,
    from: impl Into<Payload<'p>>,
) -> Result<(), LocalFault> {
    let from = from.into();
    let mut done = 0;
    each_piece(sges, offset, from.len(), |sge, at, len| {
        let pin = pins.access(sge.lkey.0, pd, Access::LOCAL_WRITE, at, len as u64)?;
        pin.write(at, from.slice(done..done + len))?;
        done += len;
        Ok(())
    })
}

/// Checks that the whole list may be used with the access rights `need`. A responder does this
/// before it accepts a message.
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
