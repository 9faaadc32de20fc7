//! Latency: one outstanding message at a time.
//!
//! | operation | timed interval |
//! |---|---|
//! | SEND, WRITE_IMM | half the time from post until the peer's message completes a receive |
//! | WRITE | half the time from post until the last byte of the peer's message is in memory |
//! | READ, atomics | from post to completion |
//!
//! The peer's message has the same size.
//!
//! A thread that waits for a WRITE reads memory and polls its queue alternately, because the
//! polling thread receives the packets. With `--spin-memory` the thread only reads memory, as
//! `ib_write_lat` does, and the device's background thread receives.
//!
//! Each end is bound to its own processor, as for the floor ([`super::cpu_affinity`]).

use std::time::Instant;

use urxe::{Data, RecvRequest, RemoteRegion, SendRequest};

use super::case::{Case, Limit};
use super::cpu_affinity::{CpuAffinity, Side};
use super::end::{End, QpStates, identifier};
use super::error::PerfError;
use super::statistics::{Latencies, Sample};
use crate::traffic::error::unexpected;
use crate::traffic::operation::Operation;

/// Runs the measuring end.
///
/// # Errors
/// [`PerfError`].
pub fn measure(end: &End, states: &mut QpStates, limit: Limit) -> Result<Sample, PerfError> {
    let _affinity = CpuAffinity::to(Side::Asks);
    let mut ping_pong = PingPong::new(end)?;
    let mut latencies = Latencies::new();
    let factor = if end.case.operation.is_ping_pong() { 0.5 } else { 1.0 };
    let goal = if let Limit::Messages(messages) = limit { messages } else { u64::MAX };
    let start = Instant::now();
    while latencies.len() < goal {
        let before = Instant::now();
        ping_pong.send_next(end, states)?;
        ping_pong.wait_for(end, states, states.qps[0].sent, &mut || Ok(false))?;
        let now = Instant::now();
        latencies.record(now - before);
        if limit.time().is_some_and(|time| now - start >= time) {
            break;
        }
    }
    ping_pong.settle(end, states)?;
    let sample = Sample::timed(&latencies);
    Ok(Sample { usec: sample.usec.map(|times| times.times(factor)), ..sample })
}

/// Runs the other end, which replies to each message until `is_over`.
///
/// # Errors
/// [`PerfError`].
pub fn respond(
    end: &End,
    states: &mut QpStates,
    mut is_over: impl FnMut() -> Result<bool, PerfError>,
) -> Result<(), PerfError> {
    let _affinity = CpuAffinity::to(Side::Answers);
    let mut ping_pong = PingPong::new(end)?;
    while ping_pong.wait_for(end, states, states.qps[0].sent + 1, &mut is_over)? {
        ping_pong.send_next(end, states)?;
    }
    ping_pong.settle(end, states)
}

struct PingPong<'a> {
    sends: Vec<SendRequest<'a>>,
    receives: Vec<Vec<RecvRequest<'a>>>,
    /// Offset of the last byte of the peer's message in the region.
    last_byte: usize,
    inline: Vec<u8>,
    remote: RemoteRegion,
}

impl<'a> PingPong<'a> {
    fn new(end: &'a End) -> Result<Self, PerfError> {
        let Case { operation, size, .. } = end.case;
        let receives = if operation.is_received() { vec![end.receives(0)?] } else { Vec::new() };
        let window = end.case.window();
        let remote = end.remote.and_then(|remote| remote.slice(window as u64..).ok());
        Ok(Self {
            sends: end.sends(0)?,
            receives,
            last_byte: window + size - 1,
            inline: end.message.clone(),
            remote: remote.ok_or_else(|| unexpected("not connected"))?,
        })
    }

    /// Sends the next message.
    fn send_next(&mut self, end: &End, states: &mut QpStates) -> Result<(), PerfError> {
        while states.qps[0].outstanding >= end.case.depth {
            self.take(end, states)?;
        }
        let state = &mut states.qps[0];
        let at = state.next_send;
        let every = end.case.signal_every();
        if end.case.operation == Operation::Write {
            self.write(end, at, number(state.sent + 1), every)?;
        } else {
            end.qps[0].post_send(&self.sends[at])?;
        }
        state.next_send = (at + 1) % self.sends.len();
        state.unsignaled = (state.unsignaled + 1) % every;
        state.outstanding += 1;
        state.sent += 1;
        state.touched = (state.touched + 1).min(self.sends.len());
        Ok(())
    }

    /// Posts a WRITE of slot 0 whose last byte is `number`.
    fn write(&mut self, end: &End, at: usize, number: u8, every: u32) -> Result<(), PerfError> {
        let size = end.case.size;
        let data: Data<'_> = if end.case.inline {
            self.inline[size - 1] = number;
            Data::inline(&self.inline)
        } else {
            // The reply proves that the previous message has arrived, so the buffer is free.
            end.region.write(size - 1, &[number])?;
            end.region.slice(..size)?.into()
        };
        let mut request = SendRequest::write(data, self.remote);
        if (at + 1).is_multiple_of(every as usize) {
            request = request.wr_id(identifier(0, every as usize)).signaled();
        }
        Ok(end.qps[0].post_send(&request)?)
    }

    /// Waits for the peer's `nr`-th message, or for the completion. Returns `false` if `is_over`
    /// first.
    fn wait_for(
        &mut self,
        end: &End,
        states: &mut QpStates,
        nr: u64,
        is_over: &mut dyn FnMut() -> Result<bool, PerfError>,
    ) -> Result<bool, PerfError> {
        match end.case.operation {
            Operation::Send | Operation::WriteImm => {
                while states.qps[0].received < nr {
                    if self.take(end, states)? == 0 && states.should_check_end(end) && is_over()? {
                        return Ok(false);
                    }
                }
            }
            Operation::Write => {
                let awaited = number(nr);
                let mut looks = 0u32;
                while end.region.load_u8(self.last_byte)? != awaited {
                    looks = looks.wrapping_add(1);
                    let is_time = if end.case.spin_memory {
                        std::hint::spin_loop();
                        if looks.is_multiple_of(1 << 20) {
                            states.check_stall(end)?;
                        }
                        looks.is_multiple_of(1 << 12)
                    } else {
                        self.take(end, states)?;
                        states.should_check_end(end)
                    };
                    if is_time && is_over()? {
                        return Ok(false);
                    }
                }
            }
            Operation::Read | Operation::FetchAdd | Operation::CmpSwap => {
                while states.qps[0].outstanding > 0 {
                    self.take(end, states)?;
                }
            }
        }
        Ok(true)
    }

    fn take(&mut self, end: &End, states: &mut QpStates) -> Result<usize, PerfError> {
        let count = states.take(end)?;
        if count > 0 {
            states.record_progress();
            states.post_receives(end, &self.receives)?;
        } else {
            states.check_stall(end)?;
        }
        Ok(count)
    }

    /// Waits for the completions of all sent messages.
    fn settle(&mut self, end: &End, states: &mut QpStates) -> Result<(), PerfError> {
        while states.qps[0].outstanding > states.qps[0].unsignaled {
            self.take(end, states)?;
        }
        Ok(())
    }
}

/// Returns the last byte of the `nr`-th message, which is not 0 and differs from the previous one.
fn number(nr: u64) -> u8 {
    (nr % 255 + 1) as u8
}
