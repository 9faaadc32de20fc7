//! Access to memory by keys, and changes of keys.

use std::ops::Range;

use rustix::io::Errno;
use urxe_stack::memory::Access;

use super::{Model, OmittedRule};
use crate::keys::{Accessor, Change, Kind, Refusal};
use crate::operation::{Piece, QPS};

impl Model {
    pub(super) fn resolve(
        &mut self,
        accessor: Accessor,
        piece: Piece,
        need: Access,
    ) -> Result<usize, Refusal> {
        let Piece { key, addr, len } = piece;
        let outcome = self.keys.resolve(accessor, key, need, addr, len as usize);
        if self.omitted == Some(OmittedRule::ProtectionDomains) && outcome == Err(Refusal::WrongPd)
        {
            let pd = 1 - accessor.pd;
            return self.keys.resolve(Accessor { pd, ..accessor }, key, need, addr, len as usize);
        }
        let forgotten = matches!(
            (self.omitted, &outcome),
            (Some(OmittedRule::WindowOwners), Err(Refusal::WrongQp))
                | (Some(OmittedRule::Rights), Err(Refusal::NoRight))
        );
        if forgotten {
            return self.keys.place(accessor.device, key, addr, len as usize);
        }
        if let Err(refusal) = outcome {
            self.count_former(accessor, piece, need, refusal);
            let peers = accessor.qp.is_some();
            self.count(match (refusal, peers) {
                (Refusal::NoKey, false) => "local: no such key",
                (Refusal::NoKey, true) => "remote: no such key",
                (Refusal::WrongPd, false) => "local: another protection domain",
                (Refusal::WrongPd, true) => "remote: another protection domain",
                (Refusal::WrongQp, _) => "remote: a window of another queue pair",
                (Refusal::NoRight, false) => "local: no right",
                (Refusal::NoRight, true) => "remote: no right",
                (Refusal::OutOfBounds, false) => "local: out of bounds",
                (Refusal::OutOfBounds, true) => "remote: out of bounds",
            });
        }
        outcome
    }

    /// Counts a refusal that would have been an access before the region was reregistered.
    fn count_former(&mut self, accessor: Accessor, piece: Piece, need: Access, refusal: Refusal) {
        let key = self.keys.find(accessor.device, piece.key).map(|nr| &self.keys.0[nr]);
        let former = key.and_then(|key| key.former.as_ref());
        if former.is_none_or(|former| {
            former.admits(accessor, need, piece.addr, piece.len as usize).is_err()
        }) {
            return;
        }
        self.count(match refusal {
            Refusal::WrongPd => "of a former protection domain",
            Refusal::NoRight => "a former right",
            _ => "at a former place",
        });
    }

    /// Returns the ranges of a list of pieces. A piece without bytes needs no key.
    pub(super) fn places(
        &mut self,
        accessor: Accessor,
        pieces: &[Piece],
        need: Access,
    ) -> Result<Vec<Range<usize>>, Refusal> {
        let mut places = Vec::new();
        for piece in pieces.iter().filter(|piece| piece.len > 0) {
            let at = self.resolve(accessor, *piece, need)?;
            places.push(at..at + piece.len as usize);
        }
        Ok(places)
    }

    pub(super) fn scatter(&mut self, device: usize, places: &[Range<usize>], bytes: &[u8]) {
        let mut rest = bytes;
        for place in places {
            let (now, later) = rest.split_at(place.len().min(rest.len()));
            self.memory[device][place.start..place.start + now.len()].copy_from_slice(now);
            rest = later;
        }
    }

    pub(super) fn leave_open(&mut self, device: usize, range: Range<usize>) {
        self.open.push((device, range));
    }

    pub(super) fn invalidate(&mut self, qp: usize, pd: usize, value: u32, by_peer: bool) -> bool {
        let before = self.keys.clone();
        let gone = self.keys.invalidate(QPS[qp].device, pd, qp, value, by_peer);
        if gone && self.omitted == Some(OmittedRule::Invalidation) {
            self.keys = before;
        }
        gone
    }

    /// Removes a key after its object was deregistered or deallocated.
    pub fn remove_key(&mut self, nr: usize) {
        let key = &mut self.keys.0[nr];
        (key.exists, key.is_valid, key.under) = (false, false, None);
    }

    /// Returns whether a region or window may be removed.
    pub fn may_go(&self, nr: usize) -> bool {
        matches!(self.keys.0[nr].kind, Kind::Window { .. }) || !self.keys.is_under_windows(nr)
    }

    /// Reregisters a region, or returns the error.
    pub fn reregister(&mut self, nr: usize, change: &Change) -> Result<(), Errno> {
        let outcome = match self.keys.may_change(nr, change) {
            Err(Errno::BUSY) if self.omitted == Some(OmittedRule::BoundRegions) => Ok(()),
            outcome => outcome,
        };
        self.count(match outcome {
            Ok(()) => "reregistered",
            Err(Errno::BUSY) => "reregistered under windows",
            Err(_) => "reregistration refused",
        });
        outcome?;
        let mut change = change.clone();
        match self.omitted {
            Some(OmittedRule::Places) => change.place = None,
            Some(OmittedRule::Domains) => change.pd = None,
            Some(OmittedRule::Grants) => change.access = None,
            _ => {}
        }
        self.keys.change(nr, &change);
        Ok(())
    }
}
