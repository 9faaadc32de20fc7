//! riomap, riounmap, riowrite: memory of the program that its peer writes.

use std::ffi::c_int;

use rustix::io::Errno;
use urxe_stack::memory::{Access, Mr};

use super::answer::{Result, errno};
use super::link::{Link, Wait};
use super::protocol::segment::{Iomap, Segment};
use super::protocol::stream::Stream as Protocol;
use super::transfer::Pieces;
use crate::context::Context;
use crate::node::lock;

/// Memory that is mapped.
struct Mapping {
    addr: u64,
    len: usize,
    offset: u64,
    mr: Mr,
    /// Its entry in the peer's list; local mappings have none.
    index: Option<u16>,
    is_told: bool,
}

/// A connection's mappings. The peer's list has room for a number of them.
#[derive(Default)]
pub struct Iomaps {
    mappings: Vec<Mapping>,
    room: u32,
    /// Some are not told yet.
    is_pending: bool,
}

/// What riomap asks for.
pub struct Wanted {
    pub addr: u64,
    pub len: usize,
    /// Whether the peer may write it.
    pub is_remote: bool,
    /// `None`: the address.
    pub offset: Option<u64>,
}

impl Wanted {
    /// `prot` of the call: `PROT_NONE` or `PROT_WRITE`.
    pub fn is_remote(prot: c_int) -> Result<bool> {
        match prot {
            libc::PROT_NONE => Ok(false),
            libc::PROT_WRITE => Ok(true),
            _ => Err(Errno::INVAL),
        }
    }
}

impl Iomaps {
    pub fn new(room: u32) -> Self {
        Self { room, ..Self::default() }
    }

    fn free_index(&self) -> Option<u16> {
        let is_used = |index| self.mappings.iter().any(|mapping| mapping.index == Some(index));
        (0..self.room).map_while(|index| u16::try_from(index).ok()).find(|index| !is_used(*index))
    }

    /// Takes all back, when the connection goes.
    pub fn end(&mut self, context: &Context) {
        for mapping in self.mappings.drain(..) {
            let _ = context.device().memory().deregister(mapping.mr.lkey);
        }
    }
}

impl Link {
    /// Registers memory, and notes that the peer is to hear of it with the next data; the offset by
    /// which it names it.
    ///
    /// # Safety
    /// What `ibv_reg_mr(3)` asks: the memory stays mapped until it is unmapped here, and is used by
    /// no Rust reference.
    pub unsafe fn map(&self, pd: urxe_stack::memory::PdId, wanted: &Wanted) -> Result<u64> {
        let mut iomaps = lock(&self.sending);
        let index =
            if wanted.is_remote { Some(iomaps.free_index().ok_or(Errno::NOMEM)?) } else { None };
        let access = if wanted.is_remote {
            Access::LOCAL_WRITE | Access::REMOTE_WRITE
        } else {
            Access::LOCAL_WRITE
        };
        let memory = self.endpoint.queues.context.device().memory();
        let start = std::ptr::with_exposed_provenance_mut(wanted.addr as usize);
        // SAFETY: the caller's.
        let mr = unsafe { memory.register(pd, start, wanted.len, wanted.addr, access) }
            .map_err(|error| errno(error.into()))?;
        let offset = wanted.offset.unwrap_or(wanted.addr);
        let (addr, len, is_told) = (wanted.addr, wanted.len, !wanted.is_remote);
        iomaps.mappings.push(Mapping { addr, len, offset, mr, index, is_told });
        iomaps.is_pending |= wanted.is_remote;
        Ok(offset)
    }

    /// Takes memory back; the peer does not hear of it, and its writes fail.
    pub fn unmap(&self, addr: u64, len: usize) -> Result<()> {
        let mut iomaps = lock(&self.sending);
        let found =
            iomaps.mappings.iter().position(|mapping| (mapping.addr, mapping.len) == (addr, len));
        let mapping = iomaps.mappings.remove(found.ok_or(Errno::INVAL)?);
        let memory = self.endpoint.queues.context.device().memory();
        memory.deregister(mapping.mr.lkey).map_err(|error| errno(error.into()))
    }

    /// Tells the peer of what was mapped since it heard last.
    pub fn tell_iomaps(&self, iomaps: &mut Iomaps, wait: Wait) -> Result<()> {
        if !iomaps.is_pending {
            return Ok(());
        }
        for mapping in iomaps.mappings.iter_mut().filter(|mapping| !mapping.is_told) {
            let Some(index) = mapping.index else { continue };
            let length = u32::try_from(mapping.len).unwrap_or(u32::MAX);
            let memory = Segment { addr: mapping.addr, key: mapping.mr.rkey.value(), length };
            self.tell(wait, index, Iomap { offset: mapping.offset, memory })?;
            mapping.is_told = true;
        }
        iomaps.is_pending = false;
        Ok(())
    }

    /// Writes into memory that the peer has mapped from `offset` on; how much of `pieces`, which is
    /// less where a mapping ends.
    pub fn write_mapped(&self, pieces: &Pieces<'_>, offset: u64, wait: Wait) -> Result<usize> {
        let mut turn = lock(&self.sending);
        self.tell_iomaps(&mut turn, wait)?;
        if !self.inner().protocol.has_mapped(offset) {
            // It may have been told meanwhile.
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
