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

/// Mapped memory, which stays registered.
struct Mapping {
    addr: u64,
    len: usize,
    _registration: Registration,
    /// The index in the peer's list; local mappings have none.
    index: Option<u16>,
}

/// The memory of the mappings of a connection. The protocol has the list for the peer.
#[derive(Default)]
pub struct Iomaps {
    mappings: Vec<Mapping>,
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

impl StreamIo {
    /// Registers memory, and schedules a message to the peer, which is sent before the next data.
    /// Returns the offset by which the peer names the memory.
    pub fn map(
        &self,
        wanted: &MapRequest,
        register: impl FnOnce(&Memory, PdId, Access) -> std::result::Result<Mr, RegMrError>,
    ) -> Result<u64> {
        let mut iomaps = lock(&self.sending);
        let is_local = wanted.prot == libc::PROT_NONE;
        // The lock of the mappings keeps the free entry for this call.
        if !is_local && !self.inner().protocol.mappings.has_room() {
            return Err(Errno::NOMEM);
        }
        let remote = if is_local { Access::empty() } else { Access::REMOTE_WRITE };
        let access = Access::LOCAL_WRITE | remote;
        let device = self.endpoint.queues.device;
        let mr = register(device.engine.device().memory(), device.pd, access).map_err(errno)?;
        let registration = Registration { mr, device };
        let offset = wanted.offset.unwrap_or(wanted.addr);
        let (addr, len, mut index) = (wanted.addr, wanted.len, None);
        if !is_local {
            let length = u32::try_from(len).unwrap_or(u32::MAX);
            let memory = Segment { addr, key: registration.mr.rkey.value(), length };
            let added = self.inner().protocol.mappings.add(Iomap { offset, memory });
            index = Some(added.ok_or(Errno::NOMEM)?);
            iomaps.is_pending = true;
        }
        iomaps.mappings.push(Mapping { addr, len, _registration: registration, index });
        Ok(offset)
    }

    /// Unmaps memory. The peer gets no message, and its later writes fail.
    pub fn unmap(&self, addr: u64, len: usize) -> Result<()> {
        let mut iomaps = lock(&self.sending);
        let found =
            iomaps.mappings.iter().position(|mapping| (mapping.addr, mapping.len) == (addr, len));
        let unmapped = iomaps.mappings.remove(found.ok_or(Errno::INVAL)?);
        if let Some(index) = unmapped.index {
            self.inner().protocol.mappings.remove(index);
        }
        Ok(())
    }

    /// Sends messages about all mappings that the peer has not received.
    pub fn send_pending_iomaps(&self, iomaps: &mut Iomaps, wait: Wait) -> Result<()> {
        if !iomaps.is_pending {
            return Ok(());
        }
        while self.inner().protocol.mappings.has_unsent() {
            let mut inner = self.wait_until(wait, |protocol| {
                protocol.sender.is_ready() || !protocol.is_writable()
            })?;
            if !inner.protocol.is_writable() {
                return Err(Errno::CONNRESET);
            }
            if let Some(post) = inner.protocol.next_mapping() {
                self.post(&post, &[])?;
            }
        }
        iomaps.is_pending = false;
        Ok(())
    }

    /// Writes into memory that the peer has mapped from `offset` on. Returns the number of bytes,
    /// which is lower if the mapping ends before.
    pub fn write_mapped(&self, pieces: &GatherList<'_>, offset: u64, wait: Wait) -> Result<usize> {
        let mut turn = lock(&self.sending);
        self.send_pending_iomaps(&mut turn, wait)?;
        if self.inner().protocol.mapped_len(offset).is_none() {
            // The peer's message about the mapping may have arrived in the meantime.
            self.progress()?;
        }
        if self.inner().protocol.mapped_len(offset).is_none() {
            return Ok(0);
        }
        self.send_each(pieces, wait, |protocol: &mut Protocol, wanted, sent| {
            Ok(protocol.send_to(wanted, offset.wrapping_add(sent as u64)))
        })
    }
}
