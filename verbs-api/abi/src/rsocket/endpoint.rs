//! Queue pair and buffers of a connection, made before it stands.

use std::ffi::c_int;
use std::mem::zeroed;
use std::sync::Arc;

use rustix::io::Errno;
use urxe_stack::cq::Cq;
use urxe_stack::device::QpHandle;
use urxe_stack::memory::{Access, Buffer, Mr};
use urxe_stack::qp::attr::QpType;
use urxe_stack::qp::wr::RecvRequest;

use super::answer::{Result, errno};
use super::protocol::message::Work;
use super::protocol::segment::Iomap;
use super::protocol::stream::{Places, Sizes};
use crate::channel::{self, ChannelObject};
use crate::cm::id::IdObject;
use crate::cm::qp;
use crate::context::Context;
use crate::cq::{self, CqObject};
use crate::error::VerbError;
use crate::layout::{ibv_comp_channel, ibv_qp_init_attr, rdma_cm_id};
use crate::pd::PdObject;
use crate::qp::QpObject;

/// Fewer work requests than this no queue has, and more the protocol cannot count
/// (`RS_QP_MIN_SIZE`, `RS_QP_MAX_SIZE`).
const MIN_QUEUE: u16 = 16;
pub const MAX_QUEUE: u16 = 0xfffe;
/// Receives posted at a time.
const BATCH: usize = 64;

/// An identifier that belongs to an rsocket.
pub struct Id(pub *mut rdma_cm_id);

// SAFETY: what the structure shows is changed by one thread at a time: who makes the socket, and
// then the service's thread.
unsafe impl Send for Id {}
// SAFETY: as above.
unsafe impl Sync for Id {}

impl Id {
    pub fn object(&self) -> Result<&IdObject> {
        // SAFETY: an rsocket's identifier is destroyed with it.
        unsafe { IdObject::from_c(self.0) }.map_err(errno)
    }
}

/// A completion channel that belongs to an rsocket.
pub struct CqChannel(*mut ibv_comp_channel);

// SAFETY: the structure behind it is shared by design; its C fields are not touched here.
unsafe impl Send for CqChannel {}
// SAFETY: as above.
unsafe impl Sync for CqChannel {}

impl CqChannel {
    pub fn object(&self) -> Result<&ChannelObject> {
        // SAFETY: the channel is destroyed with the rsocket.
        unsafe { ChannelObject::from_c(self.0) }.map_err(errno)
    }
}

/// A context of the library's own, which stays open as long as the process lives.
#[derive(Clone, Copy)]
pub struct Shared(&'static Context);

// SAFETY: a C program's threads share contexts: what changes is behind locks, and what the C
// structures show does not change.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl std::ops::Deref for Shared {
    type Target = Context;

    fn deref(&self) -> &Context {
        self.0
    }
}

impl Shared {
    /// Context and domain of an identifier.
    ///
    /// # Safety
    /// The identifier is there, and nobody changes it.
    pub unsafe fn of_id(id: &Id) -> Result<(Self, &'static PdObject)> {
        // SAFETY: the caller's; context and domain stay as long as the process.
        unsafe {
            let context = Context::from_c((*id.0).verbs).map_err(errno)?;
            Ok((Self(context), PdObject::from_c((*id.0).pd).map_err(errno)?.0))
        }
    }
}

/// Registered memory.
pub struct Region {
    pub buffer: Arc<Buffer>,
    pub mr: Mr,
    context: Shared,
}

impl Region {
    pub fn new(context: Shared, pd: &PdObject, len: usize, access: Access) -> Result<Self> {
        let buffer = Arc::new(Buffer::new(len.max(1)).map_err(|_| Errno::NOMEM)?);
        let iova = buffer.addr().expose_provenance() as u64;
        let memory = context.device().memory();
        let mr = memory
            .register_buffer(pd.memory, &buffer, 0..buffer.len(), iova, access)
            .map_err(|error| errno(error.into()))?;
        Ok(Self { buffer, mr, context })
    }

    pub fn address(&self) -> u64 {
        self.buffer.addr().addr() as u64
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // A device that is gone took its regions along.
        let _ = self.context.device().memory().deregister(self.mr.lkey);
    }
}

/// The two ends' queues are made for an identifier: one completion queue for both directions, with
/// a channel of its own.
///
/// # Safety
/// The identifier is bound to a device, has no queues, and is this thread's.
pub unsafe fn make_queues(id: &Id, entries: u32) -> Result<()> {
    let id = id.0;
    // SAFETY: the caller's.
    unsafe {
        let channel = channel::create_comp_channel((*id).verbs);
        if channel.is_null() {
            return Err(errno(VerbError::last("a completion channel")));
        }
        let entries = c_int::try_from(entries).unwrap_or(c_int::MAX);
        let made = cq::create_cq((*id).verbs, entries, id.cast(), channel, 0);
        if made.is_null() {
            let error = VerbError::last("a completion queue");
            channel::destroy_comp_channel(channel);
            return Err(errno(error));
        }
        ((*id).recv_cq_channel, (*id).send_cq_channel) = (channel, channel);
        ((*id).recv_cq, (*id).send_cq) = (made, made);
    }
    Ok(())
}

/// What stands behind an identifier's queues.
pub struct Queues {
    pub context: Shared,
    pub qp: QpHandle,
    pub cq: Arc<Cq>,
    pub channel: CqChannel,
}

impl Queues {
    /// Makes a queue pair for the identifier, and what it needs.
    ///
    /// # Safety
    /// As [`make_queues`].
    pub unsafe fn new(id: &Id, qp_type: QpType, sizes: &mut Sizes, sges: [u32; 2]) -> Result<Self> {
        let id_c = id.0;
        // SAFETY: the caller's; zero is valid for all fields.
        unsafe {
            make_queues(id, u32::from(sizes.send_queue) + u32::from(sizes.recv_queue))?;
            let mut attr: ibv_qp_init_attr = zeroed();
            (attr.send_cq, attr.recv_cq) = ((*id_c).send_cq, (*id_c).recv_cq);
            attr.qp_type = qp_type.number().into();
            attr.sq_sig_all = 1;
            attr.cap.max_send_wr = sizes.send_queue.into();
            attr.cap.max_recv_wr = sizes.recv_queue.into();
            [attr.cap.max_send_sge, attr.cap.max_recv_sge] = sges;
            // What tells the peer of memory always goes with its request.
            attr.cap.max_inline_data = sizes.inline.max(Iomap::LEN as u32);
            qp::make_plain_qp(id_c, (*id_c).pd, &mut attr).map_err(errno)?;
            sizes.inline = sizes.inline.min(attr.cap.max_inline_data);
            let (qp, _) = QpObject::from_c((*id_c).qp).map_err(errno)?;
            let (context, _) = Shared::of_id(id)?;
            let (cq, _) = CqObject::from_c((*id_c).recv_cq).map_err(errno)?;
            Ok(Self {
                context,
                qp: qp.handle,
                cq: Arc::clone(&cq.cq),
                channel: CqChannel((*id_c).recv_cq_channel),
            })
        }
    }
}

/// What a connection is made with.
pub struct Endpoint {
    pub queues: Queues,
    pub send: Region,
    pub recv: Region,
    /// Where the peer writes what it lends.
    pub list: Region,
    pub sizes: Sizes,
}

impl Endpoint {
    /// For an identifier that has a device and no queue pair.
    ///
    /// # Safety
    /// As [`make_queues`].
    pub unsafe fn new(id: &Id, mut sizes: Sizes) -> Result<Self> {
        // SAFETY: the caller's.
        let (context, pd) = unsafe { Shared::of_id(id) }?;
        let max =
            u16::try_from(context.device().limits().max_qp_wr).unwrap_or(MAX_QUEUE).min(MAX_QUEUE);
        sizes.send_queue = sizes.send_queue.clamp(MIN_QUEUE, max);
        sizes.recv_queue = sizes.recv_queue.clamp(MIN_QUEUE, max);
        sizes.inline = sizes.inline.min(context.device().limits().max_inline_data);
        // SAFETY: the caller's.
        let queues = unsafe { Queues::new(id, QpType::Rc, &mut sizes, [2, 1]) }?;
        let written = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let region = |len: usize, access| Region::new(context, pd, len, access);
        let made = Self {
            queues,
            send: region(sizes.send_buffer as usize, Access::empty())?,
            recv: region(sizes.recv_buffer as usize, written)?,
            list: region(sizes.list_len(), written)?,
            sizes,
        };
        made.post_receives(sizes.recv_queue.into())?;
        Ok(made)
    }

    /// Where the peer finds this side's memory.
    pub fn places(&self) -> Places {
        let place = |region: &Region| (region.address(), region.mr.rkey.value());
        Places { list: place(&self.list), recv_buffer: place(&self.recv) }
    }

    /// Posts so many receives, which need no memory: data comes by WRITE.
    pub fn post_receives(&self, count: u32) -> Result<()> {
        let receives = [RecvRequest { wr_id: Work::RECEIVE_ID, sges: &[] }; BATCH];
        let mut left = count as usize;
        while left > 0 {
            let batch = &receives[..left.min(BATCH)];
            self.queues
                .context
                .node
                .engine
                .post_recv(self.queues.qp, batch)
                .map_err(|(_, error)| errno(error.into()))?;
            left -= batch.len();
        }
        Ok(())
    }
}
