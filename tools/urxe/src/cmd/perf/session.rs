//! A case at one end, over its rounds.

use urxe::Device;

use super::case::{Case, Limit, Metric};
use super::end::{End, Lanes};
use super::error::PerfError;
use super::protocol::{Ends, Sent};
use super::statistics::Sample;
use super::{latency, stream, verify};

/// Queue pairs and where they are.
#[derive(Debug)]
pub struct Session {
    end: End,
    lanes: Lanes,
}

impl Session {
    /// Queue pairs in INIT, with their receives.
    ///
    /// # Errors
    /// [`PerfError`].
    pub fn new(device: &Device, case: Case) -> Result<Self, PerfError> {
        let end = End::new(device, case)?;
        let mut lanes = Lanes::new(&case);
        if case.operation.is_received() {
            end.fill_receives(&mut lanes)?;
        }
        Ok(Self { end, lanes })
    }

    /// What is measured.
    pub fn case(&self) -> &Case {
        &self.end.case
    }

    /// What the other end needs.
    pub fn ends(&self) -> Ends {
        self.end.ends()
    }

    /// Connects all queue pairs.
    ///
    /// # Errors
    /// [`PerfError`].
    pub fn connect(&mut self, ends: &Ends) -> Result<(), PerfError> {
        self.end.connect(ends)
    }

    /// Before a round.
    ///
    /// # Errors
    /// [`PerfError`].
    pub fn begin(&mut self) -> Result<(), PerfError> {
        self.lanes.begin();
        self.end.clear()
    }

    /// After a round, when what arrived has been checked.
    pub fn end_round(&mut self) {
        self.lanes.end(self.end.case.ring_len());
    }

    /// The part of the end that asks.
    ///
    /// # Errors
    /// [`PerfError`].
    pub fn ask(&mut self, limit: Limit) -> Result<Sample, PerfError> {
        match self.end.case.metric {
            Metric::Bandwidth => stream::send(&self.end, &mut self.lanes, limit),
            Metric::Latency => latency::ask(&self.end, &mut self.lanes, limit),
        }
    }

    /// Whether the other end has something to do, or leaves all to its device.
    pub fn is_active_target(&self) -> bool {
        let case = &self.end.case;
        case.operation.is_received()
            || case.target_polls
            || (case.metric == Metric::Latency && case.operation.is_ping_pong())
    }

    /// The part of the other end.
    ///
    /// # Errors
    /// [`PerfError`].
    pub fn answer(
        &mut self,
        is_over: impl FnMut() -> Result<bool, PerfError>,
    ) -> Result<(), PerfError> {
        match self.end.case.metric {
            Metric::Latency if self.end.case.operation.is_ping_pong() => {
                latency::answer(&self.end, &mut self.lanes, is_over)
            }
            _ => stream::receive(&self.end, &mut self.lanes, is_over),
        }
    }

    /// What was sent in this round.
    pub fn sent(&self) -> Vec<Sent> {
        self.lanes.sent()
    }

    /// Checks what the other end sent.
    ///
    /// # Errors
    /// [`PerfError`]: the data is wrong.
    pub fn verify_target(&self, sent: &[Sent]) -> Result<u64, PerfError> {
        verify::target(&self.end, &self.lanes, sent)
    }

    /// Checks what this end fetched.
    ///
    /// # Errors
    /// [`PerfError`]: the data is wrong.
    pub fn verify_requester(&self) -> Result<u64, PerfError> {
        verify::requester(&self.end, &self.lanes)
    }
}
