//! Awaitable queue pairs that are connected by IP address and port.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

use super::AsyncQueuePair;
use crate::cm::{Close, Connection, ConnectionEvents, PrivateData};

/// A connection whose operations are futures: an [`AsyncQueuePair`] that `rdma_cm` connected.
///
/// It dereferences to its queue pair, so it has [all methods](AsyncQueuePair#implementations) of
/// [`AsyncQueuePair`]: [`send`](AsyncQueuePair::send), [`recv`](AsyncQueuePair::recv),
/// [`write`](AsyncQueuePair::write), [`read`](AsyncQueuePair::read),
/// [`fetch_add`](AsyncQueuePair::fetch_add), [`batch`](AsyncQueuePair::batch),
/// [`pd`](AsyncQueuePair::pd) and others. [`AsyncQueuePairBuilder::connect`] and
/// [`AsyncQueuePairBuilder::accept`] make it.
///
/// [`AsyncQueuePairBuilder::connect`]: super::AsyncQueuePairBuilder::connect
/// [`AsyncQueuePairBuilder::accept`]: super::AsyncQueuePairBuilder::accept
///
/// When the peer disconnects, the queue pair enters the error state, and all futures resolve.
/// Clones are handles of the same connection. [`close`](Self::close) loses no message. Dropping the
/// last handle of the connection and of its queue pair disconnects at once.
///
/// ```
/// use urxe::aio::{AsyncConnection, AsyncQueuePair, SetupError};
/// use urxe::cm::{Listener, Options};
/// # use urxe::Device;
///
/// async fn serve(listener: &Listener) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
///     let request = listener.next().await?;
///     let connection = AsyncQueuePair::builder().accept(request, &Options::new()).await?;
///     Ok(connection.recv().await?.to_vec())
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let here = Device::open_address([127, 49, 11, 25])?;
/// # let there = Device::open_address([127, 49, 11, 26])?;
/// let listener = Listener::builder().device(&here).bind("127.49.11.25:0")?;
/// let addr = listener.local_addr();
/// # let client = std::thread::spawn(move || pollster::block_on(async {
/// let options = Options::new().device(&there);
/// let connection: AsyncConnection = AsyncQueuePair::builder().connect(addr, &options).await?;
/// connection.send(b"hello").await.unwrap();
/// # Ok::<_, SetupError>(connection)
/// # }));
/// assert_eq!(pollster::block_on(serve(&listener))?, b"hello");
/// # client.join().unwrap()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct AsyncConnection {
    // The handle with the slots is dropped first.
    qp: AsyncQueuePair,
    connection: Arc<Connection>,
}

impl AsyncConnection {
    pub(super) fn new(qp: AsyncQueuePair, connection: Arc<Connection>) -> Self {
        Self { qp, connection }
    }

    /// Returns the queue pair, for a task that only transfers data.
    #[must_use]
    pub fn queue_pair(&self) -> &AsyncQueuePair {
        &self.qp
    }

    /// Returns the address and port of this end.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.connection.local_addr()
    }

    /// Returns the address and port of the peer.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.connection.peer_addr()
    }

    /// Returns the private data of the peer.
    #[must_use]
    pub fn peer_private_data(&self) -> PrivateData<'_> {
        self.connection.peer_private_data()
    }

    /// Returns the queue of events.
    #[must_use]
    pub fn events(&self) -> ConnectionEvents<'_> {
        self.connection.events()
    }

    /// Closes the connection: completes the sends, disconnects, and waits for the confirmation of
    /// the peer, as [`Connection::close`] does.
    ///
    /// # Errors
    /// The returned future fails with [`CloseError`](crate::cm::CloseError).
    pub fn close(&self) -> Close<'_> {
        self.connection.close()
    }

    /// Disconnects at once, as [`Connection::disconnect`] does.
    pub fn disconnect(&self) {
        self.connection.disconnect();
    }
}

impl Deref for AsyncConnection {
    type Target = AsyncQueuePair;

    fn deref(&self) -> &AsyncQueuePair {
        &self.qp
    }
}

impl fmt::Debug for AsyncConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.connection.fmt(f)
    }
}
