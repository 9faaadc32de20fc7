//! riomap, riounmap, riowrite: memory of the program that its peer writes.

use std::ffi::c_int;

use rustix::io::Errno;
use urxe_stack::memory::{Access, Memory, Mr, PdId, RegMrError};
use urxe_stack::sync::lock;

use super::stream_io::StreamIo;
use crate::error::{Result, errno};
use crate::iovec::GatherList;
use crate::options::Wait;
use crate::protocol::segment::{Iomap, Segment};
use crate::protocol::stream::Stream as Protocol;
use crate::transport::queues::Registration;

/// Mapped memory.
struct Mapping {
    addr: u64,
    len: usize,
    offset: u64,
    registration: Registration,
    /// The index in the peer's list; local mappings have none.
    index: Option<u16>,
    is_sent: bool,
}

/// The mappings of a connection, whose number the peer's list limits.
#[derive(Default)]
pub struct Iomaps {
    mappings: Vec<Mapping>,
    room: u32,
    /// The peer has not received some of the mappings.
    is_pending: bool,
}

/// The arguments of riomap.
#[derive(Clone, Copy, Debug)]
pub struct MapRequest {
    /// The first address.
    pub addr: u64,
    /// The length in bytes.
    pub len: usize,
    /// `PROT_NONE`, or `PROT_WRITE` if the peer may write the memory.
    pub prot: c_int,
    /// The offset by which the peer names the memory; `None` selects the address.
    pub offset: Option<u64>,
}

impl Iomaps {
    pub fn new(room: u32) -> Self {
        Self { room, ..Self::default() }
    }

    fn free_index(&self) -> Option<u16> {
        let is_used = |index| self.mappings.iter().any(|mapping| mapping.index == Some(index));
        (0..self.room).map_while(|index| u16::try_from(index).ok()).find(|index| !is_used(*index))
    }
}

impl StreamIo {
    /// Registers memory, and schedules a message to the peer, which is sent before the next data.
    /// Returns the offset by which the peer names the memory.
    pub fn map(
        &self,
        wanted: &MapRequest,
        register: impl FnOnce(&Memory, PdId, Access) -> std::result::Result<Mr, RegMrError>,
    ) -> Result<u64> {
        let mut iomaps = lock(&self.sending);
        let (access, index) = match wanted.prot {
            libc::PROT_NONE => (Access::LOCAL_WRITE, None),
            _ => {
                let index = iomaps.free_index().ok_or(Errno::NOMEM)?;
                (Access::LOCAL_WRITE | Access::REMOTE_WRITE, Some(index))
            }
        };
        let device = self.endpoint.queues.device;
        let mr = register(device.engine.device().memory(), device.pd, access).map_err(errno)?;
        let registration = Registration { mr, device };
        let offset = wanted.offset.unwrap_or(wanted.addr);
        let (addr, len, is_sent) = (wanted.addr, wanted.len, index.is_none());
        iomaps.mappings.push(Mapping { addr, len, offset, registration, index, is_sent });
        iomaps.is_pending |= !is_sent;
        Ok(offset)
    }

    /// Unmaps memory. The peer gets no message, and its later writes fail.
    pub fn unmap(&self, addr: u64, len: usize) -> Result<()> {
        let mut iomaps = lock(&self.sending);
        let found =
            iomaps.mappings.iter().position(|mapping| (mapping.addr, mapping.len) == (addr, len));
        iomaps.mappings.remove(found.ok_or(Errno::INVAL)?);
        Ok(())
    }

    /// Sends messages about all mappings that the peer has not received.
    pub fn send_pending_iomaps(&self, iomaps: &mut Iomaps, wait: Wait) -> Result<()> {
        if !iomaps.is_pending {
            return Ok(());
        }
        for mapping in iomaps.mappings.iter_mut().filter(|mapping| !mapping.is_sent) {
            let Some(index) = mapping.index else { continue };
            let length = u32::try_from(mapping.len).unwrap_or(u32::MAX);
            let memory =
                Segment { addr: mapping.addr, key: mapping.registration.mr.rkey.value(), length };
            self.send_iomap(wait, index, Iomap { offset: mapping.offset, memory })?;
            mapping.is_sent = true;
        }
        iomaps.is_pending = false;
        Ok(())
    }

    /// Writes into memory that the peer has mapped from `offset` on. Returns the number of bytes,
    /// which is lower if the mapping ends before.
    pub fn write_mapped(&self, pieces: &GatherList<'_>, offset: u64, wait: Wait) -> Result<usize> {
        let mut turn = lock(&self.sending);
        self.send_pending_iomaps(&mut turn, wait)?;
        if !self.inner().protocol.has_mapped(offset) {
            // The peer's message about the mapping may have arrived in the meantime.
            self.progress()?;
        }
        if !self.inner().protocol.has_mapped(offset) {
            return Ok(0);
        }
        self.send_each(pieces, wait, |protocol: &mut Protocol, wanted, sent| {
            Ok(protocol.send_to(wanted, offset.wrapping_add(sent as u64)))
        })
    }
}
