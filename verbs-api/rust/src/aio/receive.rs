//! Receiving messages in tasks.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use urxe_stack::cq::{Completion, WcOpcode};
use urxe_stack::memory::BufferError;

use super::AsyncQueuePair;
use super::driving::Driving;
use super::error::OperationError;
use super::queue::Inner;
use super::turns::Ticket;

/// The future of [`AsyncQueuePair::recv`]. Dropping the future loses no message.
///
/// ```
/// use urxe::aio::{AsyncQueuePair, Receive, Received};
/// # use urxe::{ConnectOptions, sim::Fabric};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let fabric = Fabric::new(1);
/// # let (a, b) = (fabric.device([10, 0, 0, 1])?, fabric.device([10, 0, 0, 2])?);
/// # let qp = AsyncQueuePair::builder().create(&a.alloc_pd()?)?;
/// # let peer = AsyncQueuePair::builder().create(&b.alloc_pd()?)?;
/// # qp.connect(&peer.endpoint(), &ConnectOptions::default())?;
/// # peer.connect(&qp.endpoint(), &ConnectOptions::default())?;
/// # let _sent = pollster::block_on(peer.send_imm(b"hello", 7))?;
/// let receive: Receive<'_> = qp.recv();
/// let message: Received = pollster::block_on(receive)?;
/// assert_eq!((message.to_vec(), message.imm_data()), (b"hello".to_vec(), Some(7)));
/// # Ok(())
/// # }
/// ```
#[must_use = "a future does nothing unless it is awaited"]
pub struct Receive<'a> {
    inner: &'a Arc<Inner>,
    ticket: Option<Ticket>,
    driving: Driving,
}

impl<'a> Receive<'a> {
    pub(super) fn new(qp: &'a AsyncQueuePair) -> Self {
        Self { inner: &qp.inner, ticket: None, driving: Driving::default() }
    }
}

impl Future for Receive<'_> {
    type Output = Result<Received, OperationError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { inner, ticket, driving } = &mut *self;
        if inner.buffers.count == 0 {
            return Poll::Ready(Err(OperationError::NoReceives));
        }
        inner.dispatch();
        let mut look = || inner.take_message(ticket, cx.waker());
        let found = match look() {
            Some(found) => Poll::Ready(found),
            None => driving.pend(inner, cx, look).map(Result::flatten),
        };
        if found.is_ready() {
            driving.end(inner);
        }
        found.map_err(|error| inner.explained(error)).map_ok(|(index, completion)| {
            let inner = Arc::clone(inner);
            Received { inner, index, completion }
        })
    }
}

impl Drop for Receive<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.inner.leave_receivers(ticket);
        }
        self.driving.end(self.inner);
    }
}

impl fmt::Debug for Receive<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receive").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

/// A received message. Dropping the value posts its receive buffer again, so a program that keeps
/// many messages leaves the peer fewer buffers.
///
/// The bytes are copied out, because registered memory is never borrowed
/// ([`MemoryRegion`](crate::MemoryRegion)).
#[must_use = "dropping it discards the message"]
pub struct Received {
    inner: Arc<Inner>,
    index: u32,
    completion: Completion,
}

impl Received {
    /// Returns the number of bytes in the buffer. A WRITE with immediate data has its bytes in the
    /// memory that the peer named, and none here.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.completion.opcode {
            WcOpcode::RecvRdmaWithImm => 0,
            _ => self.completion.byte_len as usize,
        }
    }

    /// Returns whether the buffer has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the immediate data, if the peer sent some.
    #[must_use]
    pub fn imm_data(&self) -> Option<u32> {
        self.completion.imm_data()
    }

    /// Returns the completion of the receive.
    pub fn completion(&self) -> &Completion {
        &self.completion
    }

    /// Copies `dst.len()` bytes at `offset` of the message into `dst`.
    ///
    /// # Errors
    /// Fails with [`BufferError::OutOfBounds`].
    pub fn read(&self, offset: usize, dst: &mut [u8]) -> Result<(), BufferError> {
        let (len, buffer_len) = (dst.len(), self.len());
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= buffer_len);
        let buffers = &self.inner.buffers;
        match &buffers.region {
            Some(region) if is_inside => region.read(buffers.start(self.index) + offset, dst),
            _ if is_inside => Ok(()),
            _ => Err(BufferError::OutOfBounds { offset, len, buffer_len }),
        }
    }

    /// Copies the message into a new vector.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        let copied = self.read(0, &mut bytes);
        debug_assert_eq!(copied, Ok(()), "a message fits its buffer");
        bytes
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        self.inner.post_receive(self.index);
    }
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Received")
            .field("len", &self.len())
            .field("imm_data", &self.imm_data())
            .finish_non_exhaustive()
    }
}
