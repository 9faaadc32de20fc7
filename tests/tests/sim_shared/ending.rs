//! Premature ends of connections: the server's end moves to the error state, or a request must be
//! refused.

use urxe::*;

use super::InjectedBug;
use super::checker::{Check, Due};
use super::lent_part::State;
use super::scenario::{Connection, PART, Pool, ServerEnd, SharedQueues};

/// The end of a connection.
pub enum Ending {
    /// The server ended the connection in any state.
    Ended,
    /// A request on an idle connection must be refused, and must not change its part of the queue's
    /// region.
    Refused { queue: usize, image: Vec<u8> },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum EndingKind {
    End,
    /// A WRITE with the key that was invalidated last.
    StaleKey,
    /// A FLUSH for persistence of a region without that right.
    WeakFlush,
}

impl Ending {
    /// Returns whether the outcome of the last request matters.
    pub fn waits(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }
}

impl Connection {
    fn can(&self, kind: EndingKind, pools: &[Pool], bug: Option<InjectedBug>) -> bool {
        let state = if bug == Some(InjectedBug::StaleKey) { State::Valid } else { State::Free };
        let pool = &pools[self.lent.queue];
        self.ending.is_none()
            && match kind {
                EndingKind::End => true,
                EndingKind::StaleKey => {
                    self.is_idle() && self.lent.state == state && self.lent.remote.is_some()
                }
                EndingKind::WeakFlush => {
                    self.is_idle() && !pool.log.access().contains(Access::FLUSH_PERSISTENT)
                }
            }
    }

    fn end(&self) -> Result<(), ModifyError> {
        match &self.server {
            ServerEnd::Rc(qp) => qp.set_error(),
            ServerEnd::Xrc(target) => {
                let attr = QpAttr { qp_state: QpState::Err, ..QpAttr::default() };
                target.modify(&attr, QpAttrMask::STATE)
            }
        }
    }
}

impl SharedQueues {
    /// Ends one connection.
    pub fn end_one(&mut self) -> Result<(), String> {
        let kind = match self.bug {
            Some(InjectedBug::StaleKey) => EndingKind::StaleKey,
            Some(InjectedBug::WeakFlush) => EndingKind::WeakFlush,
            _ => self.rng.pick(&[
                EndingKind::End,
                EndingKind::End,
                EndingKind::StaleKey,
                EndingKind::WeakFlush,
            ]),
        };
        let Self { rng, connections, pools, memory, bug, .. } = self;
        let first = rng.index(connections.len());
        let mut order = (first..connections.len()).chain(0..first);
        let Some(nr) = order.find(|&nr| connections[nr].can(kind, pools, *bug)) else {
            return Ok(());
        };
        let connection = &mut connections[nr];
        let queue = connection.lent.queue;
        let pool = &pools[queue];
        let start = connection.part * 2 * PART;
        let data = memory.slice(start..start + 1).unwrap();
        let request = match kind {
            EndingKind::End => {
                connection.end().unwrap();
                connection.ending = Some(Ending::Ended);
                return Ok(());
            }
            EndingKind::StaleKey => {
                let remote = connection.lent.remote.ok_or("lent, and without a key")?;
                // A byte that differs from the current one.
                let there = pool.region.read_vec(connection.lent.range.start, 1).unwrap();
                memory.write(start, &[!there[0]]).unwrap();
                SendRequest::write(data, remote)
            }
            EndingKind::WeakFlush => {
                let placement = match *bug {
                    Some(InjectedBug::WeakFlush) => PlacementType::GLOBAL_VISIBILITY,
                    _ => PlacementType::PERSISTENCE,
                };
                SendRequest::flush_region(pool.log.remote(), placement)
            }
        };
        let due = Due { check: Check::Refused, ..Due::new(WcOpcode::RdmaWrite) };
        connection.post(pool, request, due)?;
        let image = pool.region.read_vec(connection.target(), PART).unwrap();
        connection.ending = Some(Ending::Refused { queue, image });
        Ok(())
    }
}
