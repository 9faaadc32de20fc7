//! Waiting for the first request of the peer.
//!
//! An end that has accepted a connection waits for the RTU of its peer. A request on the queue pair
//! proves as well that the connection is established (IBTA vol. 1, 12.9.7.2).
//!
//! ```text
//!   RTR ──> silent ──a request with the expected PSN──> heard: calls the wake
//! ```

use std::fmt;

use urxe_types::sync::Arc;
use urxe_types::wake::Wake;

/// Whether a request of the peer with the expected PSN has arrived since RTR.
#[derive(Default)]
pub(crate) struct PeerWatch {
    is_heard: bool,
    wake: Option<Arc<dyn Wake>>,
}

impl PeerWatch {
    pub fn is_heard(&self) -> bool {
        self.is_heard
    }

    /// Lets the first request call `wake`, unless it has arrived.
    pub fn begin(&mut self, wake: Arc<dyn Wake>) {
        self.wake = (!self.is_heard).then_some(wake);
    }

    /// Handles a request with the expected PSN.
    #[cold]
    pub fn hear(&mut self) {
        self.is_heard = true;
        if let Some(wake) = self.wake.take() {
            wake.wake();
        }
    }
}

impl fmt::Debug for PeerWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerWatch").field("is_heard", &self.is_heard).finish_non_exhaustive()
    }
}
