//! A case or a floor at one end, over its rounds.

use urxe::Device;

use super::case::{Case, Limit, Metric};
use super::end::{End, QpStates};
use super::error::PerfError;
use super::floor::FloorEnd;
use super::statistics::Sample;
use super::{latency, stream};

/// Queue pairs and their state.
#[derive(Debug)]
pub struct Session {
    pub end: End,
    pub states: QpStates,
}

/// The work of a session.
pub enum Work {
    Verbs(Box<Session>),
    Floor(Box<FloorEnd>),
}

impl Session {
    /// Creates queue pairs in INIT and posts their receives.
    ///
    /// # Errors
    /// [`PerfError`].
    pub fn new(device: &Device, case: Case) -> Result<Self, PerfError> {
        let end = End::new(device, case)?;
        let mut states = QpStates::new(&case);
        if case.operation.is_received() {
            end.fill_receives(&mut states)?;
        }
        Ok(Self { end, states })
    }

    /// Prepares a round.
    ///
    /// # Errors
    /// [`PerfError`].
    pub fn begin(&mut self) -> Result<(), PerfError> {
        self.states.begin();
        self.end.clear()
    }

    /// Ends a round, after the verification of received data.
    pub fn end_round(&mut self) {
        self.states.end(self.end.case.ring_len());
    }

    /// Runs the measuring end.
    ///
    /// # Errors
    /// [`PerfError`].
    pub fn measure(&mut self, limit: Limit) -> Result<Sample, PerfError> {
        match self.end.case.metric {
            Metric::Bandwidth => stream::send(&self.end, &mut self.states, limit),
            Metric::Latency => latency::measure(&self.end, &mut self.states, limit),
        }
    }

    /// Returns whether the other end takes part, or leaves all work to its device.
    pub fn is_active_target(&self) -> bool {
        let case = &self.end.case;
        case.operation.is_received()
            || case.target_polls
            || (case.metric == Metric::Latency && case.operation.is_ping_pong())
    }

    /// Runs the other end.
    ///
    /// # Errors
    /// [`PerfError`].
    pub fn respond(
        &mut self,
        is_over: impl FnMut() -> Result<bool, PerfError>,
    ) -> Result<(), PerfError> {
        match self.end.case.metric {
            Metric::Latency if self.end.case.operation.is_ping_pong() => {
                latency::respond(&self.end, &mut self.states, is_over)
            }
            _ => stream::receive(&self.end, &mut self.states, is_over),
        }
    }
}
