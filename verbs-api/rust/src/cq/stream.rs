//! A completion queue as a stream.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use urxe_stack::cq::Completion;

use super::{CompletionQueue, Next, WaitError};

/// The completions of a queue as a [`Stream`], which never ends. An item has the result of
/// [`CompletionQueue::next`].
///
/// ```
/// use smol::stream::StreamExt;
/// use urxe::{CompletionStream, Data, RecvRequest, SendRequest};
/// # use urxe::{ConnectOptions, Gather, sim::Fabric};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let fabric = Fabric::new(1);
/// # let (a, b) = (fabric.device([10, 0, 0, 1])?, fabric.device([10, 0, 0, 2])?);
/// # let (pd, peer_pd, peer_cq) = (a.alloc_pd()?, b.alloc_pd()?, b.create_cq(16)?);
/// let cq = a.create_cq(16)?;
/// # let (qp, peer) = (pd.queue_pair(&cq).create()?, peer_pd.queue_pair(&peer_cq).create()?);
/// # qp.connect(&peer.endpoint(), &ConnectOptions::default())?;
/// # peer.connect(&qp.endpoint(), &ConnectOptions::default())?;
/// for wr_id in 0..3 {
///     qp.post_recv(&RecvRequest::new(Gather::EMPTY).wr_id(wr_id))?;
///     peer.post_send(&SendRequest::send(Data::EMPTY))?;
/// }
/// let completions: CompletionStream<'_> = cq.stream();
/// let three = completions.take(3).map(|taken| taken.map(|completion| completion.wr_id));
/// let ids: Result<Vec<_>, _> = pollster::block_on(three.try_collect());
/// assert_eq!(ids?, [0, 1, 2]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a stream does nothing unless it is polled"]
pub struct CompletionStream<'a>(Next<'a>);

impl CompletionQueue {
    /// Returns the completions as a stream, for the adapters of `futures` and of executors.
    pub fn stream(&self) -> CompletionStream<'_> {
        CompletionStream(self.next())
    }
}

impl Stream for CompletionStream<'_> {
    type Item = Result<Completion, WaitError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.0).poll(cx).map(Some)
    }
}
