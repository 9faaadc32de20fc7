//! The environment variables of captures, faults, ICMP errors, shared memory and spinning. Commands
//! that move no packets of a device ignore them, because a shell or a CI job sets them for all its
//! programs.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use urxe::{Device, DeviceBuilder, FaultError, FaultSpec, Tap};
use urxe_stack::driver::SPIN_SHARE;
use urxe_stack::sys::environment::value;

/// The file that records all packets; `%p` in the name stands for the process number.
const CAPTURE: &str = "URXE_CAPTURE";
/// `on`: the capture has no payload.
const CAPTURE_HEADERS: &str = "URXE_CAPTURE_HEADERS";
/// Faults of received packets.
const FAULTS: &str = "URXE_FAULTS";

/// `off`: packets to other processes of this user on this host go over sockets.
const SHARED_MEMORY: &str = "URXE_SHM";

/// The most time that background threads look for requests, in percent of one processor.
const SPIN: &str = "URXE_SPIN";

/// `off`: sockets take no ICMP errors of sent packets.
const ICMP_ERRORS: &str = "URXE_ICMP_ERRORS";

/// An environment variable with a wrong value.
#[derive(Debug, thiserror::Error)]
pub enum VariableError {
    /// The value.
    #[error("{variable}: {error}")]
    Value { variable: &'static str, error: String },
}

/// Returns a builder with the capture and the faults that the environment asks for.
///
/// # Errors
/// [`VariableError::Value`].
pub fn builder() -> Result<DeviceBuilder, VariableError> {
    let builder = without_capture()?;
    Ok(match capture()? {
        Some(Capture { path, has_payload }) => builder.capture(path).capture_headers(!has_payload),
        None => builder,
    })
}

/// Returns a builder as [`builder`] does, and its capture. The caller can so write the last packets
/// although a thread keeps the device open.
///
/// # Errors
/// [`VariableError::Value`].
pub fn builder_with_tap() -> Result<(DeviceBuilder, Option<Arc<Tap>>), VariableError> {
    let builder = without_capture()?;
    let Some(Capture { path, has_payload }) = capture()? else { return Ok((builder, None)) };
    let tap = Tap::create(path)
        .map_err(|error| VariableError::Value { variable: CAPTURE, error: error.to_string() })?;
    let tap = Arc::new(if has_payload { tap } else { tap.headers_only() });
    Ok((builder.tap(Arc::clone(&tap)), Some(tap)))
}

/// A capture that the environment asks for.
struct Capture {
    path: String,
    has_payload: bool,
}

fn capture() -> Result<Option<Capture>, VariableError> {
    let has_payload = !switch(CAPTURE_HEADERS, false)?;
    let path =
        |given: OsString| given.to_string_lossy().replace("%p", &std::process::id().to_string());
    Ok(value(CAPTURE).map(|given| Capture { path: path(given), has_payload }))
}

/// Returns the value of a variable that is `on` or `off`, or `usual` if the variable is not set.
fn switch(variable: &'static str, usual: bool) -> Result<bool, VariableError> {
    match value(variable).as_deref().map(OsStr::to_str) {
        None => Ok(usual),
        Some(Some("on")) => Ok(true),
        Some(Some("off")) => Ok(false),
        Some(_) => {
            let error = "the allowed values are on and off".to_owned();
            Err(VariableError::Value { variable, error })
        }
    }
}

/// Returns the most time that background threads look for requests, in percent of one processor.
///
/// # Errors
/// [`VariableError::Value`].
pub fn spin_share() -> Result<u8, VariableError> {
    let Some(given) = value(SPIN) else { return Ok(SPIN_SHARE) };
    let given = given.to_string_lossy();
    let wrong = || {
        let error = format!("{given:?} is no share: give a whole number of percent, from 0 to 100");
        VariableError::Value { variable: SPIN, error }
    };
    given.parse().ok().filter(|percent| *percent <= 100).ok_or_else(wrong)
}

fn without_capture() -> Result<DeviceBuilder, VariableError> {
    let builder = Device::builder()
        .icmp_errors(switch(ICMP_ERRORS, true)?)
        .shared_memory(switch(SHARED_MEMORY, true)?)
        .spin_share(spin_share()?);
    let Some(given) = value(FAULTS) else { return Ok(builder) };
    let faults: Result<FaultSpec, _> = given.to_string_lossy().parse();
    let wrong =
        |error: FaultError| VariableError::Value { variable: FAULTS, error: error.to_string() };
    Ok(builder.faults(faults.map_err(wrong)?))
}
