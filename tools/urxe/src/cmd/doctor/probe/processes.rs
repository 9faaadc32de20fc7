//! Checks whether two processes can share an address: this process, and a second one that it
//! starts. Checks whether a second process can send the last messages of a killed one.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use urxe_stack::driver::{Engine, EngineConfig, OpenEngineError};
use urxe_stack::link::{LinkSpec, Source};
use urxe_stack::sys::watcher::{NoWatcher, Records, Watcher};

use super::{Name, Probe};
use crate::cmd::{CmdError, Outcome};
use crate::output;

const NAME: Name = Name("several processes on one address");
const WITHOUT: &str = "each process needs its own address, such as 127.x.y.z";

fn open(address: IpAddr) -> Result<Engine, OpenEngineError> {
    let spec = LinkSpec { source: Source::Address(address), ..LinkSpec::built_in() };
    Engine::open(&spec, EngineConfig::default())
}

/// Opens a device on a loopback address, and lets a second process join.
pub fn probe() -> Probe {
    let [.., high, low] = std::process::id().to_be_bytes();
    let address = IpAddr::V4(Ipv4Addr::new(127, 127, high, low.clamp(1, 254)));
    let engine = match open(address) {
        Ok(engine) => engine,
        Err(error) => {
            return NAME.unverified(error.to_string(), "unknown until that works");
        }
    };
    if let Some((call, errno)) = engine.sharing_error() {
        let detail = format!("the system refuses {call}: {errno}");
        return NAME.limited(detail, WITHOUT).advise(
            "use Linux with abstract local sockets, memory files, and SO_REUSEPORT with BPF",
        );
    }
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => {
            return NAME.unverified(format!("no second process: {error}"), "unknown");
        }
    };
    let joined = Command::new(program).args(["doctor", "--join", &address.to_string()]).output();
    match joined {
        Ok(output) if output.status.success() => {
            let slot = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            let detail = format!(
                "a second process joined {address} in slot {slot}; this process has slot {}",
                engine.process_slot()
            );
            NAME.works(detail, "up to 64 processes of one user can share an address")
        }
        Ok(output) => {
            let stderr = String::from_utf8_lossy(&output.stderr);
            NAME.limited(format!("a second process could not join: {}", stderr.trim()), WITHOUT)
        }
        Err(error) => NAME.unverified(format!("no second process: {error}"), "unknown"),
    }
}

/// Joins the address in the second process, and prints the slot.
pub fn join(address: IpAddr) -> Result<Outcome, CmdError> {
    let mut out = output::stdout();
    match open(address) {
        Ok(engine) => {
            writeln!(out, "{}", engine.process_slot())?;
            out.flush()?;
            // A separate device does not count as shared.
            Ok(if engine.sharing_error().is_none() { Outcome::Done } else { Outcome::Failed })
        }
        Err(error) => {
            output::report(&error);
            Ok(Outcome::Failed)
        }
    }
}

/// Starts a watcher without messages, and stops it.
pub(super) fn watcher() -> Probe {
    const NAME: Name = Name("Killed processes (watcher)");
    const WITHOUT: &str = "peers of a killed process notice its end only by their timeouts";
    // A watcher uses its records until it ends, so they stay.
    let records: &'static Records = Box::leak(Box::default());
    match Watcher::start(records) {
        Ok(watcher) => {
            watcher.stop();
            NAME.works(
                "a second process can watch this one",
                "peers of a killed process get its DREQ or REJ at once",
            )
        }
        Err(why @ NoWatcher::Instrumented) => NAME.limited(why.to_string(), WITHOUT),
        Err(why @ NoWatcher::Refused { .. }) => NAME
            .limited(why.to_string(), WITHOUT)
            .advise("allow clone and pidfd_open in the sandbox"),
    }
}
