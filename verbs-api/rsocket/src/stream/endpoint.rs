//! The queue pair and the buffers of a connection, which are made before the connection is
//! established.

use urxe_stack::memory::Access;
use urxe_stack::qp::attr::QpType;
use urxe_stack::qp::work_request::RecvRequest;

use crate::error::Result;
use crate::options::MAX_QUEUE;
use crate::protocol::message::Work;
use crate::protocol::stream::{LocalMemory, Sizes};
use crate::transport::id::CmId;
use crate::transport::queues::{Queues, Region};

/// Minimum number of work requests of a queue (`RS_QP_MIN_SIZE`).
const MIN_QUEUE: u16 = 16;
/// Number of receives posted at a time.
const BATCH: usize = 64;

/// The queue pair and the buffers of a connection.
pub struct Endpoint {
    pub queues: Queues,
    pub send: Region,
    pub recv: Region,
    /// The list of lent memory, which the peer writes.
    pub list: Region,
    pub sizes: Sizes,
}

impl Endpoint {
    /// Makes the endpoint of an identifier that is bound to a device.
    pub fn new(id: &CmId, mut sizes: Sizes) -> Result<Self> {
        let device = id.device()?;
        let limits = device.engine.device().limits();
        let max = u16::try_from(limits.max_qp_wr).unwrap_or(MAX_QUEUE).min(MAX_QUEUE);
        sizes.send_queue = sizes.send_queue.clamp(MIN_QUEUE, max);
        sizes.recv_queue = sizes.recv_queue.clamp(MIN_QUEUE, max);
        sizes.inline = sizes.inline.min(limits.max_inline_data);
        let queues = Queues::new(id, QpType::Rc, &mut sizes, [2, 1])?;
        let written = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let made = Self {
            queues,
            send: Region::new(device, sizes.send_buffer as usize, Access::empty())?,
            recv: Region::new(device, sizes.recv_buffer as usize, written)?,
            list: Region::new(device, sizes.list_len(), written)?,
            sizes,
        };
        made.post_receives(sizes.recv_queue.into())?;
        Ok(made)
    }

    /// Returns the addresses and keys of this side's memory for the peer.
    pub fn local_memory(&self) -> LocalMemory {
        let place = |region: &Region| (region.address(), region.mr().rkey.value());
        LocalMemory { list: place(&self.list), recv_buffer: place(&self.recv) }
    }

    /// Posts receives. They need no memory, because data arrives by WRITE.
    pub fn post_receives(&self, count: u32) -> Result<()> {
        let receives = [RecvRequest { wr_id: Work::RECEIVE_ID, sges: &[] }; BATCH];
        let mut left = count as usize;
        while left > 0 {
            let batch = &receives[..left.min(BATCH)];
            self.queues.post_recv(batch)?;
            left -= batch.len();
        }
        Ok(())
    }
}
