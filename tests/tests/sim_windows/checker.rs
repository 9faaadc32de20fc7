//! The requests of the peer, and the checks of their results.

use std::ops::Range;

use urxe::*;
use urxe_test_support::simulation::{error_text, percent};

use super::InjectedBug;
use super::keys::{Granted, PART, Revocation};
use super::scenario::{REGION, Request, RequestState, Service, Windows};

impl Windows {
    /// Posts the peer's requests: WRITEs to separate places in the first half of the part, READs of
    /// the second half.
    pub fn post_requests(&mut self, granted: &Granted) -> Result<(), String> {
        let Granted { mut remote, part } = granted.clone();
        if self.bug == Some(InjectedBug::CurrentRefused) {
            remote.rkey.0 ^= 0x40;
        }
        let half = part.len() / 2;
        let count = 1 + self.rng.index(6);
        for nr in 0..count {
            let place = half / count * nr..half / count * (nr + 1);
            let is_write = self.service == Service::Uc || percent(&mut self.rng, 70);
            let offsets =
                if is_write { place.clone() } else { half + place.start..half + place.end };
            let there = error_text(remote.slice(offsets.start as u64..offsets.end as u64))?;
            let mut bytes = vec![0; place.len()];
            self.rng.fill(&mut bytes);
            let at = if is_write { place.start } else { PART + place.start };
            let local = error_text(self.scratch.slice(at..at + place.len()))?;
            let request = if is_write {
                error_text(self.scratch.write(at, &bytes))?;
                SendRequest::write(local, there)
            } else {
                SendRequest::read(local, there)
            };
            self.peer_posts(request.wr_id(nr as u64))?;
            let range = part.start + offsets.start..part.start + offsets.end;
            self.requests.push(Request {
                range,
                bytes: is_write.then_some(bytes),
                state: RequestState::Open,
            });
        }
        Ok(())
    }

    /// Checks that a revoked key changes no byte any more, neither by packets under way nor by a
    /// new request. Nothing else writes, so one check at the end suffices. `now` is the part of the
    /// same window under its new key.
    pub fn check_key_is_revoked(
        &mut self,
        granted: &Granted,
        now: Option<&Granted>,
        after: &[u8],
        is_lossless: bool,
    ) -> Result<(), String> {
        if self.bug == Some(InjectedBug::Change) {
            error_text(self.region.write(REGION / 2, &[!after[REGION / 2]]))?;
        }
        self.finish_requests(after)?;
        if self.is_connected() && percent(&mut self.rng, 60) {
            let granted = match (self.bug, now) {
                (Some(InjectedBug::StaleGrants), Some(now)) => now,
                _ => granted,
            };
            let by_write = self.service == Service::Uc || percent(&mut self.rng, 50);
            let (there, wr_id) =
                (error_text(granted.remote.slice(..1))?, self.requests.len() as u64);
            // A byte that differs from the current one.
            error_text(self.scratch.write(0, &[!after[granted.part.start]]))?;
            let local = error_text(self.scratch.slice(..1))?;
            let request = if by_write {
                SendRequest::write(local, there)
            } else {
                SendRequest::read(local, there)
            };
            let stale = self.owner.counter(Counter::AccessStaleKey);
            self.peer_posts(request.wr_id(wr_id))?;
            self.requests.push(Request { range: 0..0, bytes: None, state: RequestState::Open });
            self.finish_requests(after)?;
            let state = self.requests.pop().map(|request| request.state);
            match self.service {
                // Only the owner's counter reveals the access, if it arrived.
                Service::Uc
                    if is_lossless && self.owner.counter(Counter::AccessStaleKey) == stale =>
                {
                    return Err("an access by an invalidated key was not refused".into());
                }
                Service::Uc => {}
                _ if matches!(state, Some(RequestState::Failed(_))) => {}
                _ => return Err("an access by a key that is gone succeeded".into()),
            }
            self.tally.refused += 1;
        }
        Ok(())
    }

    /// Waits until no request is open, and compares the memory.
    fn finish_requests(&mut self, after: &[u8]) -> Result<(), String> {
        self.step_until("the peer's requests", Self::has_nothing_open)?;
        if self.service == Service::Uc {
            self.drain_network()?;
        }
        match self.image()? == after {
            true => Ok(()),
            false => Err("memory changed after its key was taken away".to_owned()),
        }
    }

    /// Checks that successful requests were executed, failed ones at most in part, and nothing else
    /// changed. `waited`: the key was valid until all requests had completed. `is_lossless`: no
    /// packet was lost either.
    pub fn check(
        &mut self,
        part: &Range<usize>,
        before: &[u8],
        after: &[u8],
        revocation: Revocation,
        (waited, is_lossless): (bool, bool),
    ) -> Result<(), String> {
        let mut failed = false;
        let (is_fenced, by_peer) = match revocation {
            Revocation::ByPeer { is_fenced } => (is_fenced, true),
            _ => (false, false),
        };
        // A UC WRITE may be lost wholly, or from some packet on.
        let is_sure = self.service != Service::Uc || is_lossless;
        for (nr, request) in self.requests.iter().enumerate() {
            let Request { range, bytes, state } = request;
            let is_done = *state == RequestState::Done;
            if is_done && failed {
                return Err(format!("request {nr} succeeded behind one that failed"));
            }
            // A READ whose response is lost is retried when its key may be invalid. The fence
            // prevents that.
            let refused_write =
                bytes.is_some() && *state == RequestState::Failed(WcStatus::RemAccessErr);
            if !is_done && (waited || is_fenced || (by_peer && refused_write)) {
                let fates: Vec<_> =
                    self.requests.iter().map(|r| (r.bytes.is_some(), r.state)).collect();
                let fence = if is_fenced { "with" } else { "without" };
                return Err(format!(
                    "request {nr} failed before its key ended, {fence} a fence: {fates:?}"
                ));
            }
            failed |= !is_done;
            self.tally.done += u32::from(is_done);
            self.tally.cut_off += u32::from(!is_done);
            if let Some(bytes) = bytes {
                let now = &after[range.clone()];
                let may_be = now
                    .iter()
                    .zip(bytes)
                    .zip(&before[range.clone()])
                    .all(|((n, b), o)| n == b || n == o);
                if !may_be || (is_done && is_sure && now != bytes) {
                    return Err(format!("request {nr}: the bytes written are wrong"));
                }
            } else if is_done && !range.is_empty() {
                let at = PART + range.start - part.start - part.len() / 2;
                if error_text(self.scratch.read_vec(at, range.len()))? != before[range.clone()] {
                    return Err(format!("request {nr}: the bytes read are wrong"));
                }
            }
        }
        let is_written = |at: usize| {
            self.requests
                .iter()
                .any(|request| request.bytes.is_some() && request.range.contains(&at))
        };
        if (0..REGION).any(|at| after[at] != before[at] && !is_written(at)) {
            return Err("a byte changed that no operation wrote".into());
        }
        Ok(())
    }
}
