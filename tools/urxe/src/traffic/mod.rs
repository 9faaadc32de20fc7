//! Code shared by the subcommands that move data between two ends.
//!
//! | file | subject |
//! |---|---|
//! | `selection` | the options `-d` and `--link` |
//! | `device` | opening the devices of this end, and addresses for the peer process |
//! | `variables` | the environment variables of captures and faults |
//! | `operation` | the operations |
//! | `pattern` | the bytes of messages, and their comparison |
//! | `peer`, `responder` | the two sides of a control connection: commands and replies |
//! | `error` | errors of all these subcommands |

pub mod device;
pub mod error;
pub mod operation;
pub mod pattern;
pub mod peer;
pub mod responder;
pub mod selection;
pub mod variables;

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use urxe::cm::{ConnectError, Connection, Pending};
use urxe::{Access, Completion, CompletionQueue, WaitError, WcStatus};

use self::error::TrafficError;
use crate::output;

/// The access rights of both ends to a region.
pub const ALL_ACCESS: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC);

/// Connects to the first address of a host that accepts the connection within `limit`.
///
/// # Errors
/// The error of the last address, with the address.
pub fn connect(
    host: &str,
    port: u16,
    limit: Duration,
) -> Result<TcpStream, (Option<SocketAddr>, io::Error)> {
    let mut failed = (None, io::ErrorKind::NotFound.into());
    for address in (host, port).to_socket_addrs().map_err(|error| (None, error))? {
        match TcpStream::connect_timeout(&address, limit) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = (Some(address), error),
        }
    }
    Err(failed)
}

/// Time between two looks for an ICMP error.
const LOOK_AFTER: Duration = Duration::from_millis(100);

/// Establishes a connection. If an ICMP error explains why the peer does not answer, a note on
/// standard error names it at once.
///
/// The wait goes on until its time limit, because any host can forge an ICMP message, and because
/// the peer may start later.
///
/// # Errors
/// [`ConnectError`].
pub fn establish(pending: Pending) -> Result<Connection, ConnectError> {
    let (device, peer) = (pending.device().clone(), pending.peer_addr());
    let (start, (ended, end)) = (Instant::now(), mpsc::channel::<()>());
    thread::scope(|threads| {
        threads.spawn(move || {
            while end.recv_timeout(LOOK_AFTER) == Err(RecvTimeoutError::Timeout) {
                if let Some(error) = device.path_error(peer.ip(), start.elapsed()) {
                    return output::note(&format!("{peer} has not answered yet: {error}"));
                }
            }
        });
        let established = pending.establish();
        drop(ended);
        established
    })
}

/// Waits for the next completion. Returns `None` if the connection has ended.
///
/// # Errors
/// [`TrafficError::Status`], or the error of the queue.
pub fn wait_one(
    cq: &CompletionQueue,
    what: &'static str,
) -> Result<Option<Completion>, TrafficError> {
    match cq.wait_one(None) {
        Ok(completion) => Ok(Some(completion)),
        Err(WaitError::Failed(failed)) if failed.status == WcStatus::WrFlushErr => Ok(None),
        Err(WaitError::Failed(failed)) => Err(TrafficError::Status { what, status: failed.status }),
        Err(error) => Err(error.into()),
    }
}

/// How an end waits for completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wait {
    /// Polls.
    Poll,
    /// Sleeps until the completion event.
    Events,
}

impl Wait {
    /// Returns `Events` if `events` is true, else `Poll`.
    pub const fn by(events: bool) -> Self {
        if events { Self::Events } else { Self::Poll }
    }

    /// Polls once, or sleeps up to `limit`. Returns the number of completions.
    ///
    /// # Errors
    /// [`TrafficError`].
    pub fn take_some(
        self,
        cq: &CompletionQueue,
        out: &mut [Completion],
        limit: Duration,
    ) -> Result<usize, TrafficError> {
        match self {
            Self::Poll => Ok(cq.poll(out)?),
            Self::Events => match cq.wait(out, Some(limit)) {
                Err(WaitError::TimedOut) => Ok(0),
                result => Ok(result?),
            },
        }
    }

    /// Waits for completions. Returns their number, or 0 if `limit` passed without one.
    ///
    /// # Errors
    /// [`TrafficError`].
    pub fn take(
        self,
        cq: &CompletionQueue,
        out: &mut [Completion],
        limit: Duration,
    ) -> Result<usize, TrafficError> {
        let mut started = None;
        loop {
            let count = self.take_some(cq, out, limit)?;
            let is_last =
                self == Self::Events || started.get_or_insert_with(Instant::now).elapsed() > limit;
            if count > 0 || is_last {
                return Ok(count);
            }
        }
    }
}
