//! Settings from the environment variables `URXE_*`: logging, captures, faults and switches.
//!
//! Log lines go to standard error. `URXE_LOG` filters them, as for the `urxe` command. Without the
//! variable, only errors are logged, for example a device that cannot be opened. A refused verb is
//! a warning, because programs probe for features. Privileged programs ignore all variables
//! ([`value`]).

use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::{Arc, Mutex, Once, Weak};
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::debug_fn;
use urxe_stack::driver::{EngineConfig, SPIN_SHARE, release_watcher};
use urxe_stack::escape::Escaped;
use urxe_stack::memory::CopyMode;
use urxe_stack::port::faults::FaultSpec;
use urxe_stack::port::tap::Tap;
use urxe_stack::sync::lock;
use urxe_stack::sys::environment::value;
use urxe_stack::sys::fork::PerProcess;

use crate::cm::process::end_connections;
use crate::error::VerbError;
use crate::ffi::catch_panic;

/// A filter of log lines.
const LOG: &str = "URXE_LOG";
const DEFAULT_LOG: &str = "error";
/// The file that records all packets; `%p` in the name stands for the process number.
const CAPTURE: &str = "URXE_CAPTURE";
/// `on`: the capture has no payload.
const CAPTURE_HEADERS: &str = "URXE_CAPTURE_HEADERS";
/// Impairments of received packets, for example `loss=1%,delay=50us,seed=7` ([`FaultSpec`]).
const FAULTS: &str = "URXE_FAULTS";
/// `off`: packets between devices of this process go over sockets as well, where tcpdump and netem
/// see them.
const DIRECT: &str = "URXE_DIRECT";
/// `off`: packets to other processes of this user on this host go over sockets, where tcpdump and
/// netem see them.
const SHARED_MEMORY: &str = "URXE_SHM";
/// The most time that background threads look for requests instead of sleeping, in percent of one
/// processor.
const SPIN: &str = "URXE_SPIN";
/// `off`: packets of reliable connections do not announce that their sender supports ECN.
const ECN: &str = "URXE_ECN";
/// `off`: packets of a peer may come from any UDP source port.
const PORT_CHECK: &str = "URXE_PORT_CHECK";
/// `queues`: entries of send queues stay in use until a completion is polled, as on NICs.
const STRICT: &str = "URXE_STRICT";
/// `on`: sockets believe the path MTU of ICMP messages.
const ICMP_MTU: &str = "URXE_ICMP_MTU";
/// `off`: sockets take no ICMP errors of sent packets.
const ICMP_ERRORS: &str = "URXE_ICMP_ERRORS";
/// `off`: background threads run only on the processors of the thread that opened the device.
const AFFINITY: &str = "URXE_AFFINITY";
/// `off`: the peers of a process that is killed get no message.
const WATCHER: &str = "URXE_WATCHER";
/// The seconds after which an accepted connection checks whether its peer still has it.
const KEEP_ALIVE: &str = "URXE_KEEP_ALIVE";
/// `on`: bytes of registered memory move by system calls, which fail where the program has unmapped
/// memory without deregistering it.
const CHECKED_COPIES: &str = "URXE_CHECKED_COPIES";

/// Starts logging; only the first call has an effect.
pub fn start_logging() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let given = value(LOG).unwrap_or_default().to_string_lossy().into_owned();
        let chosen = if given.trim().is_empty() { DEFAULT_LOG } else { &given };
        // Reports, such as the end of a capture, appear whatever modules the filter names.
        let chosen = &match chosen.trim() {
            "off" => chosen.to_owned(),
            _ => format!("{chosen},urxe_report=error"),
        };
        let (filter, bad) = match EnvFilter::try_new(chosen) {
            Ok(filter) => (filter, None),
            Err(error) => (EnvFilter::new(DEFAULT_LOG), Some(error)),
        };
        let logger = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(io::stderr().is_terminal())
            .with_writer(io::stderr)
            // A message may have the name of another process or the text of a peer.
            .fmt_fields(
                debug_fn(|out, field, value| match field.name() {
                    "message" => write!(out, "{}", Escaped(format_args!("{value:?}"))),
                    name => write!(out, "{name}={}", Escaped(format_args!("{value:?}"))),
                })
                .delimited(" "),
            )
            .try_init();
        if let Some(error) = bad {
            tracing::error!("{LOG}={given:?} is no log filter ({error}); try {LOG}=debug");
        }
        debug_assert!(logger.is_ok(), "only this function starts the logging of this library");
    });
}

/// Returns the engine configuration that the environment asks for.
pub fn engine_config() -> Result<EngineConfig, VerbError> {
    let checked = switch(CHECKED_COPIES, false)?;
    Ok(EngineConfig {
        tap: tap()?.map(|tap| tap as _),
        faults: faults()?,
        direct: switch(DIRECT, true)?,
        shared_memory: switch(SHARED_MEMORY, true)?,
        spin_share: percent(SPIN, SPIN_SHARE)?,
        ecn: switch(ECN, true)?,
        port_check: switch(PORT_CHECK, true)?,
        strict_queues: strict_queues()?,
        icmp_mtu: switch(ICMP_MTU, false)?,
        icmp_errors: switch(ICMP_ERRORS, true)?,
        original_affinity: switch(AFFINITY, true)?,
        watcher: switch(WATCHER, true)?,
        keep_alive: seconds(KEEP_ALIVE)?,
        copies: if checked { CopyMode::Checked } else { CopyMode::Direct },
        ..EngineConfig::default()
    })
}

/// The capture that is open. A forked child has none.
static TAP: PerProcess<Mutex<Weak<Tap>>> = PerProcess::new(Mutex::default);

/// The loader calls the functions in this section at a normal end of the process, after the exit
/// handlers of the program. The library is never unloaded, because threads of its engines run in
/// it.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

/// Ends the connections, whose peers get messages, and writes the rest of the capture. Devices that
/// librdmacm opened are never closed, so the buffered packets would be lost.
extern "C" fn at_exit() {
    catch_panic((), end_connections);
    catch_panic((), release_watcher);
    catch_panic((), || {
        let tap = TAP.get_if_made().and_then(|tap| lock(tap).upgrade());
        // The capture logs its own errors.
        tap.map(|tap| tap.flush());
    });
}

/// Returns the capture of the process, shared by its devices, and opens the capture if needed.
fn tap() -> Result<Option<Arc<Tap>>, VerbError> {
    let Some(path) = value(CAPTURE) else {
        return Ok(None);
    };
    let mut shared = lock(TAP.get());
    if let Some(tap) = shared.upgrade() {
        return Ok(Some(tap));
    }
    let path = path.to_string_lossy().replace("%p", &std::process::id().to_string());
    let headers_only = switch(CAPTURE_HEADERS, false)?;
    let tap = Tap::create(Path::new(&path)).map_err(VerbError::Capture)?;
    let tap = Arc::new(if headers_only { tap.headers_only() } else { tap });
    *shared = Arc::downgrade(&tap);
    Ok(Some(tap))
}

/// Returns the impairments that the environment asks for.
fn faults() -> Result<FaultSpec, VerbError> {
    let Some(text) = value(FAULTS) else {
        return Ok(FaultSpec::default());
    };
    text.to_string_lossy().parse().map_err(|error| VerbError::Faults { variable: FAULTS, error })
}

/// Returns whether send queues are strict.
fn strict_queues() -> Result<bool, VerbError> {
    let Some(given) = value(STRICT) else { return Ok(false) };
    match given.to_str() {
        Some("queues") => Ok(true),
        _ => Err(VerbError::Strict { given: given.to_string_lossy().into_owned() }),
    }
}

/// Returns the value of a variable in seconds, or `None` if the variable is not set.
fn seconds(variable: &'static str) -> Result<Option<Duration>, VerbError> {
    const DAY: u64 = 86_400;
    let Some(given) = value(variable) else { return Ok(None) };
    let given = given.to_string_lossy();
    match given.parse() {
        Ok(seconds @ 1..=DAY) => Ok(Some(Duration::from_secs(seconds))),
        _ => Err(VerbError::Seconds { variable, given: given.into_owned() }),
    }
}

/// Returns the value of a variable in percent, or `usual` if the variable is not set.
fn percent(variable: &'static str, usual: u8) -> Result<u8, VerbError> {
    let Some(given) = value(variable) else { return Ok(usual) };
    let given = given.to_string_lossy();
    match given.parse() {
        Ok(percent @ 0..=100) => Ok(percent),
        _ => Err(VerbError::Percent { variable, given: given.into_owned() }),
    }
}

/// Returns the value of a variable that is `on` or `off`, or `usual` if the variable is not set.
fn switch(variable: &'static str, usual: bool) -> Result<bool, VerbError> {
    let Some(text) = value(variable) else {
        return Ok(usual);
    };
    match text.to_str() {
        Some("on") => Ok(true),
        Some("off") => Ok(false),
        _ => Err(VerbError::Switch { variable, given: text.to_string_lossy().into_owned() }),
    }
}
