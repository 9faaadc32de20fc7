//! Reliable connections.
//!
//! ```text
//!             post_send                        post_recv
//!                 |                                |
//!   +-------------v------------+    +--------------v-----------+
//!   | requester  (send queue)  |    | responder (receive queue)|
//!   | completer  (answers)     |    | responses (to be sent)   |
//!   +------^-----------|-------+    +------^------------|------+
//!     answers       requests            requests     answers
//! ```
//!
//! | file | subject |
//! |---|---|
//! | `requester` | requests: PSNs, windows, fences, wire READs |
//! | `burst` | the packets that share one request for an acknowledgement |
//! | `completer` | what answers do to the requester |
//! | `recovery` | timers and retries |
//! | `reorder_buffer` | packets that came before their turn, until that comes |
//! | `gap_timer` | when to ask again for what did not come |
//! | `responder` | requests of the peer: order, duplicates, acknowledgement |
//! | `execution` | requests of the peer: rights, data, responses |
//! | `responses` | answers to be sent, and kept for duplicates |
//! | `xrc` | what a target of extended reliable connections does beside |

mod burst;
mod completer;
mod execution;
mod gap_timer;
mod recovery;
mod reorder_buffer;
mod requester;
mod responder;
mod responses;
mod xrc;

pub(super) use self::requester::Requester;
pub(super) use self::responder::Responder;
