//! A queue pair with its completion queue, and registered memory.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::io::Errno;
use urxe_stack::cq::{ArmKind, Completion, CompletionChannel, Cq};
use urxe_stack::device::QpHandle;
use urxe_stack::driver::eventfd::EventFd;
use urxe_stack::memory::{Access, Buffer, Mr};
use urxe_stack::qp::QpInit;
use urxe_stack::qp::attr::{QpAttr, QpAttrMask, QpCap, QpState, QpType};
use urxe_stack::qp::work_request::{RecvRequest, SendRequest};
use urxe_stack::time::Time;

use super::id::CmId;
use crate::error::{Result, errno};
use crate::process::Device;
use crate::protocol::segment::Iomap;
use crate::protocol::stream::Sizes;

/// A memory region that is deregistered on drop.
pub struct Registration {
    pub mr: Mr,
    pub device: Device,
}

impl Drop for Registration {
    fn drop(&mut self) {
        // A removed device has removed its regions already.
        let _ = self.device.engine.device().memory().deregister(self.mr.lkey);
    }
}

/// A buffer with its registration.
pub struct Region {
    pub buffer: Arc<Buffer>,
    registration: Registration,
}

impl Region {
    pub fn new(device: Device, len: usize, access: Access) -> Result<Self> {
        let buffer = Arc::new(Buffer::new(len.max(1)).map_err(|_| Errno::NOMEM)?);
        let iova = buffer.addr().expose_provenance() as u64;
        let memory = device.engine.device().memory();
        let mr = memory
            .register_buffer(device.pd, &buffer, 0..buffer.len(), iova, access)
            .map_err(errno)?;
        Ok(Self { buffer, registration: Registration { mr, device } })
    }

    pub const fn mr(&self) -> &Mr {
        &self.registration.mr
    }

    pub fn address(&self) -> u64 {
        self.buffer.addr().addr() as u64
    }
}

/// A completion queue with its own channel.
struct CompletionQueue {
    cq: Arc<Cq>,
    channel: Arc<CompletionChannel>,
    descriptor: Arc<EventFd>,
}

impl CompletionQueue {
    fn new(device: Device, entries: u32) -> Result<Self> {
        let descriptor = Arc::new(EventFd::new()?);
        let channel = Arc::new(CompletionChannel::new(Box::new(Arc::clone(&descriptor))));
        let made = device.engine.device().create_cq(entries, Some(Arc::clone(&channel)), 0);
        Ok(Self { cq: made.map_err(errno)?, channel, descriptor })
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        if let Err(error) = self.cq.destroy() {
            errno(error);
        }
    }
}

/// Numbers of READs and atomics at a time.
#[derive(Clone, Copy)]
pub struct Depths {
    pub initiator: u8,
    pub responder: u8,
}

/// A queue pair of an identifier, with one completion queue for both directions.
pub struct Queues {
    pub device: Device,
    pub qp: QpHandle,
    completions: CompletionQueue,
}

impl Queues {
    /// Makes a queue pair in INIT, or in RTS for datagrams. The identifier must be bound to a
    /// device.
    pub fn new(
        id: &CmId,
        qp_type: QpType,
        sizes: &mut Sizes,
        [max_send_sge, max_recv_sge]: [u32; 2],
    ) -> Result<Self> {
        let device = id.device()?;
        let cap = QpCap {
            max_send_wr: sizes.send_queue.into(),
            max_recv_wr: sizes.recv_queue.into(),
            max_send_sge,
            max_recv_sge,
            // A message about an iomapping is always inline.
            max_inline_data: sizes.inline.max(Iomap::LEN as u32),
        };
        let completions = CompletionQueue::new(device, cap.max_send_wr + cap.max_recv_wr)?;
        let core = device.engine.device();
        let init = QpInit {
            qp_type,
            pd: device.pd,
            send_cq: Arc::clone(&completions.cq),
            recv_cq: Arc::clone(&completions.cq),
            srq: None,
            cap,
            sq_sig_all: true,
        };
        let qp = core.create_qp(&init).map_err(errno)?;
        let made = Self { device, qp, completions };
        if let Some(attr) = core.query_qp(qp) {
            sizes.inline = sizes.inline.min(attr.cap.max_inline_data);
        }
        let states: &[QpState] = match qp_type {
            QpType::Ud => &[QpState::Init, QpState::Rtr, QpState::Rts],
            _ => &[QpState::Init],
        };
        for state in states {
            let (attr, mask) = id.inspect(|cma, core| cma.qp_attr(core, *state))?;
            made.modify(&attr, mask)?;
        }
        Ok(made)
    }

    fn modify(&self, attr: &QpAttr, mask: QpAttrMask) -> Result<()> {
        let modified = self.device.engine.modify_qp(self.qp, attr, mask);
        self.device.deliver_events();
        modified.map_err(errno)
    }

    /// Moves the queue pair to RTS with the attributes of its connection. `depths` replaces the
    /// numbers that both sides agreed on.
    pub fn to_rts(&self, id: &CmId, depths: Option<Depths>) -> Result<()> {
        // The access rights of the peer were set when the queue pair was made.
        let states = [QpState::Init, QpState::Rtr, QpState::Rts];
        let all = id.inspect(|cma, core| {
            let [init, rtr, rts] = states.map(|state| cma.qp_attr(core, state));
            Ok([init?, rtr?, rts?])
        })?;
        for (state, (mut attr, mask)) in states.into_iter().zip(all) {
            if let Some(depths) = depths {
                match state {
                    QpState::Rtr => attr.max_dest_rd_atomic = depths.responder,
                    QpState::Rts => attr.max_rd_atomic = depths.initiator,
                    _ => {}
                }
            }
            self.modify(&attr, mask)?;
        }
        Ok(())
    }

    /// Moves the queue pair to the error state; a thread that sleeps for a completion gets one.
    pub fn to_error(&self) {
        // Sends acknowledgements that wait for a reply; otherwise the peer would wait for them.
        let _nothing_to_refuse = self.device.engine.post_send(self.qp, &[]);
        let attr = QpAttr { qp_state: QpState::Err, ..QpAttr::default() };
        // A failure is logged and needs no further action.
        let _ = self.modify(&attr, QpAttrMask::STATE);
    }

    pub fn post_send(&self, request: SendRequest<'_>) -> Result<()> {
        let posted = self.device.engine.post_send(self.qp, &[request]);
        self.device.deliver_events();
        posted.map_err(|(_, error)| errno(error))
    }

    pub fn post_recv(&self, requests: &[RecvRequest<'_>]) -> Result<()> {
        let posted = self.device.engine.post_recv(self.qp, requests);
        posted.map_err(|(_, error)| errno(error))
    }

    /// Takes completions. After the last call, the caller must deliver the events of the device.
    pub fn poll(&self, batch: &mut [Completion]) -> Result<usize> {
        self.device.engine.poll(&self.completions.cq, batch).map_err(errno)
    }

    /// Arms the completion queue.
    pub fn arm(&self) {
        self.device.engine.flush_deferred();
        self.completions.cq.arm(ArmKind::Next);
    }

    /// Takes an event, if there is one. Returns whether there was one.
    pub fn try_take_event(&self) -> Result<bool> {
        let CompletionQueue { cq, channel, descriptor } = &self.completions;
        while descriptor.try_take()? {
            if channel.next_event_for_count().is_some() {
                cq.ack_events(1);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sleeps for an event and takes it. The device receives packets in the meantime.
    pub fn take_event(&self) -> Result<()> {
        let CompletionQueue { channel, descriptor, .. } = &self.completions;
        while !self.try_take_event()? {
            self.device.engine.wait(descriptor.as_fd(), Time::NEVER, || channel.has_events())?;
        }
        Ok(())
    }
}

impl AsFd for Queues {
    /// Returns a descriptor that is readable while the completion queue has an event.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.completions.descriptor.as_fd()
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        let engine = self.device.engine;
        engine.flush_acks(self.qp);
        if let Err(error) = engine.device().destroy_qp(engine.now(), self.qp) {
            errno(error);
        }
    }
}
