//! Keep-alive probes of the passive side.
//!
//! A passive program may wait for a message forever if its peer's host disappears. So the passive
//! side repeats its REP in an established connection, as after a lost RTU. A connection manager
//! that has the connection repeats its RTU (IBTA 12.9.8.6; cm.c, `cm_dup_rep_handler`). One that
//! does not have it rejects or drops the REP.
//!
//! | time since the last RTU | action |
//! |---|---|
//! | the configured period | a REP |
//! | each further second | a REP |
//! | one second after the [last](PROBES) | the connection ends |

use urxe_wire::mad::{Attribute, MAD_LEN};

use super::ConnectionManager;
use super::connection::{Connection, PendingRequest};
use super::table::CmState;
use urxe_types::time::Time;

/// The number of probes without an RTU after which the connection ends.
const PROBES: u32 = 5;
const PROBE_INTERVAL_NS: u64 = 1_000_000_000;

/// The state of the probes of a connection.
#[derive(Clone, Debug)]
pub(super) struct KeepAlive {
    /// The REP.
    rep: Box<[u8; MAD_LEN]>,
    unanswered: u32,
}

impl ConnectionManager {
    /// Starts or ends the probes of a connection that has left a state with this pending request.
    /// Returns the time of the first probe.
    pub(super) fn update_keep_alive(
        &mut self,
        index: usize,
        pending: Option<&PendingRequest>,
        now: Time,
    ) -> Time {
        let period_ns = self.config.keep_alive_ns;
        let connection = self.at_mut(index);
        let rep = pending.filter(|sent| {
            sent.attribute == Attribute::Rep && connection.state == CmState::Established
        });
        connection.keep_alive =
            period_ns.and(rep).map(|sent| KeepAlive { rep: Box::new(sent.mad), unanswered: 0 });
        match (period_ns, &connection.keep_alive) {
            (Some(period_ns), Some(_)) => now.plus_ns(period_ns),
            _ => Time::NEVER,
        }
    }

    /// Records that the peer has repeated its RTU.
    pub(super) fn note_rtu(&mut self, index: usize, now: Time) {
        let Connection { keep_alive: Some(keep_alive), .. } = self.at_mut(index) else { return };
        keep_alive.unanswered = 0;
        if let Some(period_ns) = self.config.keep_alive_ns {
            self.arm(index, now.plus_ns(period_ns));
        }
    }

    /// Sends the next probe. Returns whether there was one left.
    pub(super) fn send_probe(&mut self, index: usize, now: Time) -> bool {
        let connection = self.at_mut(index);
        let route = connection.route();
        let Some(keep_alive) = &mut connection.keep_alive else { return false };
        if keep_alive.unanswered >= PROBES {
            return false;
        }
        keep_alive.unanswered += 1;
        let rep = *keep_alive.rep;
        self.transmit(route, Attribute::Rep, rep, true);
        self.arm(index, now.plus_ns(PROBE_INTERVAL_NS));
        true
    }
}
