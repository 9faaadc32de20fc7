//! The reasons why streams fail, as `std::io::Error` has them.

use std::io;
use std::net::SocketAddr;

use urxe_stack::cq::{WcError, WcStatus};
use urxe_stack::qp::work_request::PostError;

use crate::cm::{ConnectError, ListenError};
use crate::cq::WaitError;

urxe_stack::errors! {
    /// The reason why a stream failed, or refuses a call. Each [`io::Error`] of an established
    /// stream contains one:
    ///
    /// ```
    /// use std::io::{self, ErrorKind};
    /// use urxe::stream::StreamError;
    ///
    /// /// Returns whether the client should connect again.
    /// fn is_lost(error: &io::Error) -> bool {
    ///     let reason = StreamError::of(error);
    ///     matches!(reason, Some(StreamError::Reset { .. } | StreamError::Lost { .. }))
    /// }
    ///
    /// let error = io::Error::from(StreamError::Reset { peer: ([10, 0, 0, 1], 7471).into() });
    /// assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    /// assert!(is_lost(&error));
    /// assert_eq!(StreamError::of(&ErrorKind::TimedOut.into()), None);
    /// println!("{error}");
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum StreamError {
        /// The private data of the peer is not that of an rsocket of version 1.
        #[error("the program of {peer} has no rsocket of version 1: connect to an RdmaStream or to \
                 a program with rsockets")]
        NoStream { peer: SocketAddr } = EOPNOTSUPP,
        /// The connection ended, and the peer had not ended its stream before.
        #[error("{peer} broke the connection off before the end of the stream: its program died, \
                 or dropped the stream without shutting it down, or sent invalid requests; the \
                 last bytes of both directions may be missing")]
        Reset { peer: SocketAddr } = libc::ECONNRESET,
        /// A message was not delivered.
        #[error("{peer} did not take the last bytes: {reason}; connect again")]
        Lost { peer: SocketAddr, reason: WcError } = ECONNABORTED,
        /// Bytes that arrived before the violation were read.
        #[error("{peer} violated the protocol of rsockets: it sent more than this end had allowed, \
                 or a message that no version defines; this end has disconnected")]
        Violation { peer: SocketAddr } = libc::EPROTO,
        /// The peer has dropped its stream, or has shut down both directions. Readers get the bytes
        /// that it sent before.
        #[error("{peer} has ended the stream and reads no more; read its last bytes, and connect \
                 again to send more")]
        Ended { peer: SocketAddr } = libc::EPIPE,
        /// The program wrote after `shutdown`. Reads go on.
        #[error("this end has shut its writing direction down; connect again to send more")]
        ShutDown = libc::EPIPE,
        /// [`write_at`](super::RdmaStream::write_at) found no mapping. The stream goes on.
        #[error("{peer} has mapped no memory at offset {offset}: call write_at after the peer has \
                 said that it mapped the memory, and before it drops the mapping")]
        NotMapped { peer: SocketAddr, offset: u64 } = EINVAL,
        /// [`write_at`](super::RdmaStream::write_at) wrote nothing. The stream goes on.
        #[error("{len} bytes from offset {offset} exceed the mapping of {peer}, which has {mapped} \
                 bytes from there")]
        OutsideMapping { peer: SocketAddr, offset: u64, len: usize, mapped: u64 } = EINVAL,
        /// [`write_at`](super::RdmaStream::write_at) needs mappings. This end refuses them by
        /// default.
        #[error("this end accepts no mappings of the peer: set StreamBuilder::peer_mappings")]
        NoPeerMappings = EOPNOTSUPP,
        /// The queue pair refuses a message.
        #[error(transparent)] Post(#[from] PostError),
        /// The thread or the task cannot wait.
        #[error(transparent)] Wait(#[from] WaitError),
    }
}

impl StreamError {
    /// Returns the reason that `error` contains, or `None` for an error of another source, such as
    /// a TCP stream or a connection that was not established.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }
}

impl From<StreamError> for io::Error {
    fn from(error: StreamError) -> Self {
        let kind = match error {
            StreamError::NoStream { .. } | StreamError::NoPeerMappings => {
                io::ErrorKind::Unsupported
            }
            StreamError::Reset { .. } => io::ErrorKind::ConnectionReset,
            StreamError::Lost { reason, .. } => match reason.status {
                WcStatus::RetryExcErr | WcStatus::RnrRetryExcErr => io::ErrorKind::TimedOut,
                _ => io::ErrorKind::ConnectionAborted,
            },
            StreamError::Violation { .. } => io::ErrorKind::InvalidData,
            StreamError::Ended { .. } | StreamError::ShutDown => io::ErrorKind::BrokenPipe,
            StreamError::NotMapped { .. } | StreamError::OutsideMapping { .. } => {
                io::ErrorKind::InvalidInput
            }
            StreamError::Wait(WaitError::TimedOut) => io::ErrorKind::TimedOut,
            StreamError::Post(_) | StreamError::Wait(_) => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// Returns an error of connecting, with the kind of its error number.
pub(super) fn of_connect(error: impl Into<ConnectError>) -> io::Error {
    let error = error.into();
    io::Error::new(kind(error.errno(), io::ErrorKind::NetworkUnreachable), error)
}

/// Returns an error of listening, with the kind of its error number.
pub(super) fn of_listen(error: ListenError) -> io::Error {
    io::Error::new(kind(error.errno(), io::ErrorKind::AddrNotAvailable), error)
}

/// Returns the kind of an error number. No device for the address is `without_device`.
fn kind(errno: i32, without_device: io::ErrorKind) -> io::ErrorKind {
    match errno {
        libc::ENODEV => without_device,
        _ => io::Error::from_raw_os_error(errno).kind(),
    }
}
