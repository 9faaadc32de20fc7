//! Reliable connections.
//!
//! ```text
//!             post_send                        post_recv
//!                 |                                |
//!   +-------------v------------+    +--------------v-----------+
//!   | requester  (send queue)  |    | responder (receive queue)|
//!   | completer  (responses)   |    | responses (to be sent)   |
//!   +------^-----------|-------+    +------^------------|------+
//!     responses     requests            requests    responses
//! ```
//!
//! | file | subject |
//! |---|---|
//! | `requester` | sending requests: PSNs, the window, fences, wire READs |
//! | `burst` | packets that share one ACK request |
//! | `completer` | the effect of responses on the requester |
//! | `recovery` | timers and retries |
//! | `reorder_buffer` | packets that arrived before their predecessors |
//! | `gap_timer` | the time to repeat a NAK |
//! | `responder` | receiving requests: order, duplicates, ACKs |
//! | `execution` | executing requests: access rights, data, responses |
//! | `responses` | responses to be sent, and those kept for duplicates |
//! | `saved_reads` | the data of responses that a later request would change |
//! | `xrc` | the shared receive queues of an XRC target |

mod burst;
mod completer;
mod execution;
mod gap_timer;
mod recovery;
mod reorder_buffer;
mod requester;
mod responder;
mod responses;
mod saved_reads;
mod xrc;

pub(super) use self::requester::Requester;
pub(super) use self::responder::Responder;
