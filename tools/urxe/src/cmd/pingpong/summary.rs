//! The output of a run between two hosts: the two lines of `ibv_rc_pingpong` and the result, or a
//! JSON object.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use urxe::Device;

use super::transport::Transport;
use crate::traffic::device::retries_of;

/// The result of one end.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The service.
    pub transport: Transport,
    /// Bytes of each message.
    pub size: usize,
    /// Messages each way.
    pub iterations: u32,
    /// Seconds for all messages.
    pub seconds: f64,
    /// Bits a second in both directions together, in 10^6.
    pub mbit_per_s: f64,
    /// Microseconds for a round trip.
    pub usec_per_iteration: f64,
    /// Received messages whose bytes were all correct.
    pub verified: u32,
    /// Retransmissions of this end.
    pub retries: u64,
    /// The counters of this end's device, by name.
    pub counters: BTreeMap<&'static str, u64>,
}

impl Summary {
    /// Returns the result of `iterations` verified messages each way in `elapsed` on `device`.
    pub fn new(
        transport: Transport,
        size: usize,
        iterations: u32,
        elapsed: Duration,
        device: &Device,
    ) -> Self {
        let seconds = elapsed.as_secs_f64().max(1e-9);
        let bits = size as f64 * f64::from(iterations) * 2.0 * 8.0;
        Self {
            transport,
            size,
            iterations,
            seconds,
            mbit_per_s: bits / seconds / 1e6,
            usec_per_iteration: seconds * 1e6 / f64::from(iterations.max(1)),
            verified: iterations,
            retries: retries_of(device),
            counters: device.counters().map(|(counter, value)| (counter.name(), value)).collect(),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { size, iterations, seconds, mbit_per_s, usec_per_iteration, verified, .. } = self;
        let bytes = *size as u64 * u64::from(*iterations) * 2;
        writeln!(f, "{bytes} bytes in {seconds:.2} seconds = {mbit_per_s:.2} Mbit/sec")?;
        writeln!(
            f,
            "{iterations} iters in {seconds:.2} seconds = {usec_per_iteration:.2} usec/iter"
        )?;
        write!(f, "{verified} messages received and verified, ")?;
        match self.transport {
            Transport::Rc => write!(f, "{} retransmissions", self.retries),
            unreliable => write!(f, "none lost on the way ({unreliable} sends nothing again)"),
        }
    }
}
