//! The keys that the owner lends to the peer, and their revocation.

use std::ops::Range;

use urxe::*;
use urxe_test_support::simulation::{LentKey, error_text, percent};

use super::InjectedBug;
use super::scenario::{REGION, Service, Windows};

/// The maximum length of a key's part, in bytes.
pub const PART: usize = 24_000;

/// A key, and the part that it already covers at the start of its round: that of a type 1 window
/// that was bound again at the end of the preceding round.
pub struct CarriedKey {
    pub key: LentKey,
    pub carried: Option<Granted>,
}

/// The part that a valid key covers.
#[derive(Clone)]
pub struct Granted {
    pub remote: RemoteRegion,
    /// The offsets in the owner's region.
    pub part: Range<usize>,
}

/// The revocation of a key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Revocation {
    /// The owner's LOCAL_INV.
    Invalidated,
    /// The peer's SEND with invalidate, fenced or not.
    ByPeer { is_fenced: bool },
    /// Another bind of a type 1 window.
    Rebound,
    /// A bind of a type 1 window to no bytes.
    Unbound,
}

impl CarriedKey {
    /// Creates one key of each kind that the service can use.
    pub fn all(pd: &ProtectionDomain, service: Service) -> Vec<Self> {
        let of_type = |kind| LentKey::Window(pd.alloc_window_of_type(kind).unwrap());
        let mut keys =
            vec![of_type(MwType::Type1), LentKey::Fast(pd.alloc_fast_region(16).unwrap())];
        if service != Service::Xrc {
            keys.push(of_type(MwType::Type2));
        }
        keys.into_iter().map(|key| Self { key, carried: None }).collect()
    }
}

impl Windows {
    /// Makes a key valid for a new part, and waits for the completion.
    pub fn grant(&mut self, key: &mut LentKey, wr_id: u64) -> Result<Granted, String> {
        let granted = self.ask(key, wr_id)?;
        match self.owner_completes(wr_id)?.status {
            WcStatus::Success => Ok(granted),
            status => Err(format!("the key was not made valid: {status}")),
        }
    }

    /// Posts the request that makes a key valid for a new part.
    fn ask(&mut self, key: &mut LentKey, wr_id: u64) -> Result<Granted, String> {
        let len = 1 + self.rng.index(PART);
        let start = self.rng.index(REGION - len);
        let part = start..start + len;
        let remote = key.make_valid(&self.owner_qp, &self.region, part.clone(), wr_id)?;
        let remote = remote.ok_or("bound to nothing")?;
        Ok(Granted { remote, part })
    }

    /// Draws how a key is revoked.
    pub fn choose_revocation(&mut self, carried_key: &CarriedKey) -> Revocation {
        let rng = &mut self.rng;
        match (carried_key.key.is_type1(), self.service) {
            (true, _) if percent(rng, 60) => Revocation::Rebound,
            (true, _) => Revocation::Unbound,
            (false, Service::Rc | Service::Xrc) if percent(rng, 40) => {
                Revocation::ByPeer { is_fenced: percent(rng, 50) }
            }
            _ => Revocation::Invalidated,
        }
    }

    /// Revokes the key, and waits for the completion.
    pub fn revoke(
        &mut self,
        carried_key: &mut CarriedKey,
        granted: &Granted,
        revocation: Revocation,
        wr_id: u64,
    ) -> Result<(), String> {
        let rkey = granted.remote.rkey;
        match (revocation, &mut carried_key.key) {
            (Revocation::Invalidated, _) => {
                let request = SendRequest::invalidate(rkey).wr_id(wr_id).signaled();
                error_text(self.owner_qp.post_send(&request))?;
            }
            (Revocation::ByPeer { is_fenced }, _) => {
                self.post_recv(wr_id)?;
                let request = SendRequest::send_invalidate(Data::EMPTY, rkey);
                let request = if is_fenced { request.fenced() } else { request };
                self.peer_posts(request.wr_id(u64::MAX))?;
                self.is_invalidating = true;
            }
            (Revocation::Rebound, key) => {
                let new = self.ask(key, wr_id)?;
                let is_same = self.bug == Some(InjectedBug::SameKey) || new.remote.rkey == rkey;
                if is_same {
                    return Err("bound anew, and the key is the same".into());
                }
                carried_key.carried = Some(new);
            }
            (Revocation::Unbound, LentKey::Window(window)) => {
                let request = SendRequest::unbind(window).wr_id(wr_id).signaled();
                error_text(self.owner_qp.post_send(&request))?;
            }
            (Revocation::Unbound, LentKey::Fast(_)) => {
                return Err("only windows are unbound".into());
            }
        }
        let gone = self.owner_completes(wr_id)?;
        let by_peer = matches!(revocation, Revocation::ByPeer { .. });
        if gone.status != WcStatus::Success || (by_peer && gone.invalidated_rkey() != Some(rkey)) {
            return Err(format!("not taken away: {gone:?}"));
        }
        let tally = &mut self.tally;
        *match revocation {
            Revocation::Invalidated => &mut tally.by_owner,
            Revocation::ByPeer { .. } => &mut tally.by_peer,
            Revocation::Rebound => &mut tally.rebound,
            Revocation::Unbound => &mut tally.unbound,
        } += 1;
        Ok(())
    }

    /// Checks that a peer cannot invalidate the key of a type 1 window (o10-37.2.26). The request
    /// is refused, and the window stays bound.
    pub fn check_peer_cannot_invalidate(
        &mut self,
        granted: &Granted,
        wr_id: u64,
    ) -> Result<(), String> {
        self.post_recv(wr_id)?;
        let request = match self.bug {
            Some(InjectedBug::PeerUnbinds) => SendRequest::send(Data::EMPTY),
            _ => SendRequest::send_invalidate(Data::EMPTY, granted.remote.rkey),
        };
        self.peer_posts(request.wr_id(0))?;
        let status = self.outcome()?;
        let is_refused = status == WcStatus::RemInvReqErr || self.is_lost_refusal(status);
        if !is_refused || self.owner_completes(wr_id)?.status.is_success() {
            return Err(format!("a peer took the key of a type 1 window away: {status}"));
        }
        self.tally.peer_refused += 1;
        Ok(())
    }

    /// Checks that a type 2 window serves only the peer of the queue pair that bound it, which is
    /// never a target of an XRC domain.
    pub fn check_other_queue_pair_is_refused(&mut self, wr_id: u64) -> Result<(), String> {
        self.step_until("the peer's SEND with invalidate", |scenario| !scenario.is_invalidating)?;
        let kind = match self.bug {
            Some(InjectedBug::ForeignGrants) => MwType::Type1,
            _ => MwType::Type2,
        };
        let mut key = LentKey::Window(error_text(self.region.pd().alloc_window_of_type(kind))?);
        let granted = self.grant(&mut key, wr_id)?;
        let before = self.image()?;
        let local = error_text(self.scratch.slice(..1))?;
        let request = SendRequest::write(local, error_text(granted.remote.slice(..1))?);
        self.peer_posts(request.wr_id(0))?;
        let status = self.outcome()?;
        let is_refused = status == WcStatus::RemAccessErr || self.is_lost_refusal(status);
        if !is_refused || self.image()? != before {
            return Err(format!("another queue pair's window was used: {status}"));
        }
        self.tally.other_qp_refused += 1;
        Ok(())
    }
}
