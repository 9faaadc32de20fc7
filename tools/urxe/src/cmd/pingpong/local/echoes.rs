//! Messages that the peer returns: the latency of SEND, and all operations of an unreliable
//! service.
//!
//! ```text
//! one outstanding:      message 0 ->, <- 0, 1 ->, <- 1, ...              half a round trip each
//! several outstanding:  0 1 2 ...; each returned message lets the next one be sent
//! ```
//! For an unreliable service, the number of outstanding messages is limited to the capacity of a
//! receiver's socket. The messages then fit even if the receiving process is descheduled. A
//! returned message proves that the message to the peer arrived.

use std::time::Instant;

use super::super::protocol::{Burst, Command, Echo};
use super::super::{PingpongError, Wrong, expect};
use super::{Measured, Run};
use crate::traffic::operation::Operation;

/// Outstanding bytes, unless one message is larger.
const BYTES_IN_FLIGHT: usize = 64 << 10;
/// The largest number of outstanding messages.
const MAX_IN_FLIGHT: u32 = 16;
/// Receives at the peer for each outstanding message: one that has arrived, one in flight, and
/// those that the peer has returned but not posted again.
const SLOTS_PER_MESSAGE: u32 = 4;

/// Returns the number of messages of this size that may be outstanding over an unreliable service.
pub fn in_flight(size: usize) -> u32 {
    u32::try_from(BYTES_IN_FLIGHT / size).unwrap_or(u32::MAX).clamp(1, MAX_IN_FLIGHT)
}

impl Run {
    /// Sends messages that the peer returns, up to `in_flight` at a time.
    pub(super) fn echo(
        &mut self,
        operation: Operation,
        burst: Burst,
        in_flight: u32,
    ) -> Result<Measured, PingpongError> {
        let Burst { size, first, count } = burst;
        for (message, offset) in burst.slots() {
            self.endpoint.fill(offset, message, size)?;
            self.endpoint.post_recv(message, self.back + offset, size)?;
        }
        let slots = (in_flight * SLOTS_PER_MESSAGE).min(count);
        self.command(Command::Echo(Echo { operation, size, count, slots, back: self.back }))?;
        let mut measured = Measured::default();
        let mut starts = Vec::with_capacity(count as usize);
        let (mut left, mut returned) = (0, 0);
        let start = Instant::now();
        while returned < count || left < count {
            while starts.len() < count as usize
                && starts.len() - (returned as usize) < in_flight as usize
            {
                let nr = starts.len() as u32;
                let at = |nr: u32| nr as usize * size;
                let request = self.request(operation, nr, at(nr), at(nr % slots), size)?;
                starts.push(Instant::now());
                self.endpoint.post(first + u64::from(nr), request)?;
            }
            let completion = self.next()?;
            if !completion.opcode.is_receive() {
                expect(&completion, first + u64::from(left))?;
                left += 1;
                continue;
            }
            let message = first + u64::from(returned);
            expect(&completion, message)?;
            measured.each.push(starts[returned as usize].elapsed() / 2);
            self.check_returned(operation, returned, &completion, size)?;
            returned += 1;
        }
        measured.elapsed = start.elapsed();
        for (message, offset) in burst.slots() {
            self.endpoint.check(self.back + offset, message, size)?;
        }
        self.command(Command::EndEcho)?;
        Ok(measured)
    }

    fn check_returned(
        &self,
        operation: Operation,
        nr: u32,
        completion: &urxe::Completion,
        expected: usize,
    ) -> Result<(), PingpongError> {
        let message = completion.wr_id;
        let found = self.endpoint.received(completion)?;
        if found != expected {
            return Err(Wrong::Length { message, found, expected }.into());
        }
        let expected = (operation == Operation::WriteImm).then_some(nr);
        let found = completion.imm_data();
        if found != expected {
            return Err(Wrong::Immediate { message, found, expected }.into());
        }
        Ok(())
    }
}
