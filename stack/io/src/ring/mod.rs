//! A ring of runs from one process to another one, in [memory that they
//! share](crate::sys::shared_memory).
//!
//! ```text
//!   producer ── record ── record ── record ──> consumer
//!            head                          tail
//!
//!   record: | length | segment size | source port | class, hops | 0 | the packets of a run | pad |
//!           0        4              6             8             10  16                     64 n
//! ```
//! `head` and `tail` are positions: they count all bytes since the beginning. A position modulo the
//! capacity is a place in the ring. A record begins at a multiple of 64 bytes, so that two records
//! share no cache line, and may go round the end of the ring.
//!
//! - *Restart.* If the ring is empty, the producer now and then goes on at the next beginning of
//!   the ring, and stores the position from which it does (`restart`). So traffic of small messages
//!   stays in the first kilobytes: they stay in the cache, and the system allocates no other pages.
//!   Both ends are at that position then, so all bytes of the ring have room.
//! - *Sleep.* A consumer that is about to sleep sets `asleep` and looks at the ring once more. A
//!   producer publishes its record and looks at `asleep`. Both have a fence in between, so at least
//!   one of them sees the other. A loom model tries all orders.
//! - *Release.* The packets of a record stay in the ring while the consumer handles them. Then it
//!   stores `tail` behind them, and the producer may overwrite them.
//! - *Trust.* Each end keeps its own position privately and reads the position of the other end
//!   once. A position or a record that is impossible ends the ring ([`Broken`]).
//!
//! | file | subject |
//! |---|---|
//! | `budget` | how many rings the processes of a user may write |
//! | `cursor` | the two ends of a ring |
//! | `offer` | the messages with which two processes agree on a ring |

mod budget;
mod cursor;
mod offer;

pub use budget::Budget;
pub use cursor::{
    Area, Broken, Consumer, Producer, Push, Record, Unread, fall_asleep, has_records, wake_up,
};
pub use offer::{Accepted, Endpoint, Link, Reply, RingOffer, confirm, offer, reply};

pub(crate) use offer::RING;
