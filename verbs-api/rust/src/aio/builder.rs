//! The builder of awaitable queue pairs.

#[cfg(feature = "cm")]
mod connecting;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use urxe_stack::memory::Access;
use urxe_stack::qp::attr::{QpCap, QpType};

use super::AsyncQueuePair;
use super::error::SetupError;
use super::queue::{Buffers, Inner, State, Transport, VALUE_LEN};
use crate::cq::CompletionQueue;
use crate::memory::MemoryRegion;
use crate::pd::ProtectionDomain;
use crate::qp::DEFAULT_CAP;

/// The default time for which a future polls before its task sleeps.
const BUSY_POLL: Duration = Duration::from_micros(50);

/// The options of a new [`AsyncQueuePair`], made by [`AsyncQueuePair::builder`].
///
/// By default, the queue pair is a reliable connection with 128 entries in its send queue, 64 bytes
/// of inline data, and 64 receives of 4096 bytes.
///
/// ```
/// use std::time::Duration;
/// use urxe::aio::{AsyncQueuePair, AsyncQueuePairBuilder};
/// use urxe::sim::Fabric;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pd = Fabric::new(1).device([10, 0, 0, 1])?.alloc_pd()?;
/// const RECEIVES: u32 = 32;
/// /// The longest message in bytes.
/// const LONGEST: usize = 1024;
///
/// let builder: AsyncQueuePairBuilder = AsyncQueuePair::builder()
///     .max_send_wr(256)
///     .receives(RECEIVES, LONGEST)
///     .busy_poll(Duration::ZERO);
/// let qp: AsyncQueuePair = builder.create(&pd)?;
/// assert!(qp.query().cap.max_send_wr >= 256);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct AsyncQueuePairBuilder {
    qp_type: QpType,
    cap: QpCap,
    receive_len: usize,
    busy_poll: Duration,
}

impl Default for AsyncQueuePairBuilder {
    fn default() -> Self {
        let cap = QpCap { max_recv_wr: 64, max_send_sge: 1, max_recv_sge: 1, ..DEFAULT_CAP };
        Self { qp_type: QpType::Rc, cap, receive_len: 4096, busy_poll: BUSY_POLL }
    }
}

impl AsyncQueuePairBuilder {
    /// Makes an unreliable connection (UC) in place of a reliable one. Connections by `cm` are
    /// always reliable.
    pub fn unreliable(mut self) -> Self {
        self.qp_type = QpType::Uc;
        self
    }

    /// Sets the number of entries of the send queue. More operations wait for a free entry.
    pub fn max_send_wr(mut self, requests: u32) -> Self {
        self.cap.max_send_wr = requests;
        self
    }

    /// Sets the number of bytes of inline data of an operation.
    pub fn max_inline_data(mut self, bytes: u32) -> Self {
        self.cap.max_inline_data = bytes;
        self
    }

    /// Sets the number of receives and the length of their buffers in bytes. The default is 64
    /// receives of 4096 bytes. A longer message of the peer fails, and moves the queue pair to the
    /// error state.
    ///
    /// Messages that wait for [`recv`](AsyncQueuePair::recv), and each kept
    /// [`Received`](super::Received), occupy a receive. While all are occupied, no message is lost:
    /// the device refuses it (RNR NAK), and the peer sends it again after `min_rnr_timer`. So a
    /// slow receiver delays the sends of its peer. The peer's send fails with `RnrRetryExcErr` only
    /// if the program sets a limit: [`ConnectOptions::rnr_retry`](crate::ConnectOptions::rnr_retry)
    /// of the peer, or `rnr_retry_count` of `cm::Options` at this end.
    pub fn receives(mut self, count: u32, len: usize) -> Self {
        (self.cap.max_recv_wr, self.receive_len) = (count, len);
        self
    }

    /// Sets the time for which a future polls before its task sleeps. The default is 50 µs. With
    /// zero, a task sleeps at once.
    pub fn busy_poll(mut self, time: Duration) -> Self {
        self.busy_poll = time;
        self
    }

    /// Creates the queue pair in `pd`, in RESET. [`AsyncQueuePair::connect`] connects it.
    ///
    /// # Errors
    /// Fails with [`SetupError`].
    pub fn create(self, pd: &ProtectionDomain) -> Result<AsyncQueuePair, SetupError> {
        let cq = CompletionQueue::private(pd.device(), entries(&self.cap))?;
        let qp = pd.queue_pair(&cq).qp_type(self.qp_type).cap(self.cap).create()?;
        let memory = self.memory(pd)?;
        Ok(self.finish(Transport::Own(qp), cq, memory))
    }

    /// Allocates the slots, the receive buffers and the memory of atomic operations.
    fn memory(&self, pd: &ProtectionDomain) -> Result<(State, Buffers, MemoryRegion), SetupError> {
        let (sends, count) = (self.cap.max_send_wr, self.cap.max_recv_wr);
        let state = State::new(sends, count)?;
        let len = (count as usize).saturating_mul(self.receive_len);
        let region = (len > 0).then(|| pd.allocate(len, Access::LOCAL_WRITE)).transpose()?;
        let values = pd.allocate((sends as usize).max(1) * VALUE_LEN, Access::LOCAL_WRITE)?;
        Ok((state, Buffers { region, count, len: self.receive_len }, values))
    }

    fn finish(
        &self,
        transport: Transport,
        cq: CompletionQueue,
        (state, buffers, values): (State, Buffers, MemoryRegion),
    ) -> AsyncQueuePair {
        let busy_poll_ns = u64::try_from(self.busy_poll.as_nanos()).unwrap_or(u64::MAX);
        let state = Mutex::new(state);
        let inner = Arc::new(Inner { transport, cq, state, values, buffers, busy_poll_ns });
        let weak = Arc::downgrade(&inner);
        inner.cq.on_private_event(Box::new(move || {
            if let Some(inner) = weak.upgrade() {
                inner.on_event();
            }
        }));
        AsyncQueuePair { inner }
    }
}

/// Returns the number of completions that a queue pair can have at a time.
fn entries(cap: &QpCap) -> u32 {
    cap.max_send_wr.saturating_add(cap.max_recv_wr).max(1)
}
