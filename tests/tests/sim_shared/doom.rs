//! How connections end before their time: their server end is put into the error state, or they ask
//! for what they must not have.

use urxe::*;

use super::Sabotage;
use super::judge::{Check, Due};
use super::loan::State;
use super::world::{Connection, PART, Pool, ServerEnd, World};

/// How a connection ended.
pub enum Doom {
    /// By the server, wherever it stood.
    Ended,
    /// By a request that must be refused, on an idle connection: its part of the queue's region
    /// stays as it is.
    Refused { queue: usize, image: Vec<u8> },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    End,
    /// A WRITE by the key that was taken away last.
    StaleKey,
    /// A FLUSH to the disk of a region that has not promised it.
    EmptyPromise,
}

impl Doom {
    /// Whether what becomes of its last request is still of interest.
    pub fn waits(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }
}

impl Connection {
    fn can(&self, way: Way, pools: &[Pool], sabotage: Option<Sabotage>) -> bool {
        let state = if sabotage == Some(Sabotage::StaleKey) { State::Valid } else { State::Free };
        let pool = &pools[self.loan.queue];
        self.doom.is_none()
            && match way {
                Way::End => true,
                Way::StaleKey => {
                    self.is_idle() && self.loan.state == state && self.loan.remote.is_some()
                }
                Way::EmptyPromise => {
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

impl World {
    /// Ends one connection.
    pub fn doom(&mut self) -> Result<(), String> {
        let way = match self.sabotage {
            Some(Sabotage::StaleKey) => Way::StaleKey,
            Some(Sabotage::EmptyPromise) => Way::EmptyPromise,
            _ => self.rng.pick(&[Way::End, Way::End, Way::StaleKey, Way::EmptyPromise]),
        };
        let Self { rng, connections, pools, memory, sabotage, .. } = self;
        let first = rng.index(connections.len());
        let mut order = (first..connections.len()).chain(0..first);
        let Some(nr) = order.find(|&nr| connections[nr].can(way, pools, *sabotage)) else {
            return Ok(());
        };
        let connection = &mut connections[nr];
        let queue = connection.loan.queue;
        let pool = &pools[queue];
        let start = connection.part * 2 * PART;
        let data = memory.slice(start..start + 1).unwrap();
        let request = match way {
            Way::End => {
                connection.end().unwrap();
                connection.doom = Some(Doom::Ended);
                return Ok(());
            }
            Way::StaleKey => {
                let remote = connection.loan.remote.ok_or("lent, and without a key")?;
                // Another byte than what is there.
                let there = pool.region.read_vec(connection.loan.range.start, 1).unwrap();
                memory.write(start, &[!there[0]]).unwrap();
                SendRequest::write(data, remote)
            }
            Way::EmptyPromise => {
                let placement = match *sabotage {
                    Some(Sabotage::EmptyPromise) => PlacementType::GLOBAL_VISIBILITY,
                    _ => PlacementType::PERSISTENCE,
                };
                SendRequest::flush_region(pool.log.remote(), placement)
            }
        };
        let due = Due { check: Check::Refused, ..Due::new(WcOpcode::RdmaWrite) };
        connection.post(pool, request, due)?;
        let image = pool.region.read_vec(connection.target(), PART).unwrap();
        connection.doom = Some(Doom::Refused { queue, image });
        Ok(())
    }
}
