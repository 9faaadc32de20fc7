//! Connections by address and port of awaitable queue pairs.

use std::net::SocketAddr;
use std::sync::Arc;

use super::{AsyncQueuePairBuilder, Transport, entries};
use crate::aio::connection::AsyncConnection;
use crate::aio::error::SetupError;
use crate::cm::{self, ConnectRequest, NewQueues, Pending};

impl AsyncQueuePairBuilder {
    /// Connects to a listener at `addr`, and posts the receives before the peer can send.
    ///
    /// `options` must not name queues, and its capacities have no effect.
    ///
    /// # Errors
    /// Fails with [`SetupError`].
    pub async fn connect(
        self,
        addr: SocketAddr,
        options: &cm::Options,
    ) -> Result<AsyncConnection, SetupError> {
        let pending = cm::prepare(addr, &self.options(options)?)?;
        self.establish(pending).await
    }

    /// Accepts a connection request, and posts the receives before the peer can send.
    ///
    /// `options` must not name queues, and its capacities have no effect.
    ///
    /// # Errors
    /// Fails with [`SetupError`]. The request is rejected then.
    pub async fn accept(
        self,
        request: ConnectRequest,
        options: &cm::Options,
    ) -> Result<AsyncConnection, SetupError> {
        let pending = request.prepare(&self.options(options)?)?;
        self.establish(pending).await
    }

    async fn establish(self, pending: Pending) -> Result<AsyncConnection, SetupError> {
        let memory = self.memory(pending.pd())?;
        let (_, buffers, _) = &memory;
        buffers.post_all(pending.qp())?;
        let connection = Arc::new(pending.await?);
        let cq = connection.send_cq().clone();
        let transport = Transport::Connected(Arc::clone(&connection));
        Ok(AsyncConnection::new(self.finish(transport, cq, memory), connection))
    }

    fn options(&self, options: &cm::Options) -> Result<cm::Options, SetupError> {
        match options.named_queue() {
            Some(object) => Err(SetupError::OtherQueue { object }),
            None => {
                let queues = NewQueues::Private { entries: entries(&self.cap) };
                Ok(options.clone().cap(self.cap).new_queues(queues))
            }
        }
    }
}
