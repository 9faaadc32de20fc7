//! The last errors of packets to a few peers, as ICMP messages and this system reported them.
//!
//! Any host can forge an ICMP message. So an error is a hint in the text of a request that failed
//! for another reason, such as a timeout. It ends no connection and changes no time limit.

use std::collections::VecDeque;
use std::net::IpAddr;

use crate::port::udp::{PathError, PathErrorReason};
use crate::sync::{Mutex, lock};
use crate::time::Time;

/// The number of peers. A new peer takes the place of the one whose error is the oldest.
const CAPACITY: usize = 16;

/// The last error of each peer, the newest last.
#[derive(Debug, Default)]
pub(super) struct PathErrors {
    recent: Mutex<VecDeque<(Time, PathError)>>,
}

impl PathErrors {
    /// Records an error that can explain why a peer does not answer.
    pub fn record(&self, now: Time, error: PathError) {
        if matches!(error.reason, PathErrorReason::TooBig { .. } | PathErrorReason::Other { .. }) {
            return;
        }
        let mut recent = lock(&self.recent);
        recent.retain(|(_, known)| known.peer != error.peer);
        if recent.len() == CAPACITY {
            recent.pop_front();
        }
        recent.push_back((now, error));
    }

    /// Returns the last error of packets to `peer`, unless it is from before `since`.
    pub fn since(&self, peer: IpAddr, since: Time) -> Option<PathError> {
        let recent = lock(&self.recent);
        recent
            .iter()
            .find(|(at, error)| error.peer == peer && *at >= since)
            .map(|(_, error)| *error)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn error(peer: u8, reason: PathErrorReason) -> PathError {
        PathError { peer: Ipv4Addr::new(192, 0, 2, peer).into(), reporter: None, reason }
    }

    #[test]
    fn each_peer_has_its_last_error_and_the_oldest_peer_makes_room() {
        let (errors, time) =
            (PathErrors::default(), |second: u64| Time::from_ns(second * 1_000_000_000));
        let refused = |peer| error(peer, PathErrorReason::PortUnreachable);
        let since = |peer: u8, second| errors.since(refused(peer).peer, time(second));
        errors.record(time(1), refused(0));
        errors.record(time(2), error(0, PathErrorReason::TooBig { mtu: 1000 }));
        assert_eq!((since(0, 1), since(0, 2), since(1, 0)), (Some(refused(0)), None, None));
        errors.record(time(3), error(0, PathErrorReason::HostUnreachable));
        assert_eq!(since(0, 2).unwrap().reason, PathErrorReason::HostUnreachable);
        for peer in 1..=CAPACITY as u8 {
            assert!(since(0, 0).is_some(), "{peer}");
            errors.record(time(4), refused(peer));
        }
        assert_eq!(since(0, 0), None, "its place is taken");
        assert!((1..=CAPACITY as u8).all(|peer| since(peer, 4) == Some(refused(peer))));
    }
}
