//! How an engine is opened, whom it tells what happens, and what can go wrong.

use std::io;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::connections::Connections;
use crate::cq::Wake;
use crate::device::{IcrcPolicy, Limits};
use crate::link::LinkError;
use crate::memory::CopyMode;
use crate::path::EARLY_TIMEOUT_MIN;
use crate::port::PacketTap;
use crate::port::faults::FaultSpec;
use crate::port::udp::OpenPortError;
use crate::sync::Arc;

/// How to open an engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Bytes of receive buffer to ask for; as much as is useful if `None`.
    pub receive_buffer: Option<usize>,
    /// Send runs of several packets in one call where the kernel can.
    pub gso: bool,
    /// Receive merged datagrams where the kernel can.
    pub gro: bool,
    /// How received ICRCs are checked.
    pub icrc_policy: IcrcPolicy,
    /// How bytes of registered memory move.
    pub copies: CopyMode,
    /// Where to record all packets.
    pub tap: Option<Arc<dyn PacketTap>>,
    /// Where keys, numbers and first PSNs come from; of the operating system if `None`.
    pub seed: Option<u64>,
    /// What the device can do.
    pub limits: Limits,
    /// What happens to packets that arrived before the device sees them: a simulated bad network.
    pub faults: FaultSpec,
    /// No retransmission before the local ACK timeout comes earlier than this, whatever round trips
    /// were measured. Longer is better where the peer may stall: an emulated machine, a process in
    /// a debugger.
    pub early_timeout_min: Duration,
    /// Packets to devices of this process that were opened with it as well go to them directly,
    /// over no socket. What watches or disturbs the interface (tcpdump, netem) does not see them;
    /// captures and counters of the devices do.
    pub direct: bool,
    /// Packets of reliable connections say that their sender heeds marks of routers (ECT(0)).
    pub ecn: bool,
    /// Whom to tell, beside the descriptors.
    pub hooks: Hooks,
    /// The connections that the device's management datagrams are for; without them they wait to be
    /// [taken](super::Engine::take_mad).
    pub connections: Option<Arc<Connections>>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            receive_buffer: None,
            gso: true,
            gro: true,
            icrc_policy: IcrcPolicy::default(),
            copies: CopyMode::default(),
            tap: None,
            seed: None,
            limits: Limits::default(),
            faults: FaultSpec::default(),
            early_timeout_min: EARLY_TIMEOUT_MIN,
            direct: true,
            ecn: true,
            hooks: Hooks::default(),
            connections: None,
        }
    }
}

/// Whom an engine tells what happens, beside its descriptors: for callers that wait without one.
#[derive(Clone, Default)]
pub struct Hooks {
    /// Woken like the descriptor of asynchronous events, under a lock of the core.
    pub events: Option<Arc<dyn Wake>>,
    /// Called by the background thread each time it has received and handled timeouts.
    pub after_progress: Option<Arc<dyn AfterProgress>>,
}

/// Acts on what was noted under locks. A [`Wake`] may not call back into the core; here it is
/// allowed.
pub trait AfterProgress: Send + Sync {
    /// Whether something was noted. Asked often, and under no lock.
    fn is_due(&self) -> bool;

    /// Acts on it, under no lock. It may drop the engine.
    fn act(&self);
}

impl std::fmt::Debug for Hooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hooks")
            .field("events", &self.events.is_some())
            .field("after_progress", &self.after_progress.is_some())
            .finish()
    }
}

/// What of these limits this process can have, by its limit of open files (`ulimit -n`).
#[must_use]
pub fn limits_here(limits: Limits) -> Limits {
    limits.within_descriptors(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
}

urxe_types::errors! {
    /// Why an engine could not be opened.
    #[derive(Debug, thiserror::Error)]
    pub enum OpenEngineError {
        /// The link's interface or address.
        #[error(transparent)] Link(#[from] LinkError),
        /// A socket.
        #[error(transparent)] Port(#[from] OpenPortError),
        #[error("cannot make an event descriptor: {0}; raise the limit of open files (ulimit -n)")]
        EventFd(Errno) => |errno| errno.raw_os_error(),
        #[error("the operating system gives no random numbers: {0}")]
        Random(Errno) => |errno| errno.raw_os_error(),
        #[error("cannot start the background thread: {0}")]
        Thread(io::Error) => |error| error.raw_os_error().unwrap_or(EAGAIN),
    }
}
