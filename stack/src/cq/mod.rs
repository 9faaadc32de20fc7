//! Completions, completion queues, completion channels and asynchronous events.
//!
//! | file | subject |
//! |---|---|
//! | [`completion`] | one work completion: status, opcode, flags |
//! | [`queue`] | the queue of them: push, poll, arm, overrun, resize; polling one by one |
//! | `places` | how many queues a device has |
//! | [`moderation`] | one event for several completions |
//! | [`channel`] | events of armed queues, and how they wake a sleeping program |
//! | [`events`] | asynchronous events and their acknowledgement |
//! | [`wake`] | waking somebody outside the core |

pub mod channel;
pub mod completion;
pub mod events;
pub mod moderation;
pub(crate) mod places;
pub mod queue;
pub mod wake;

pub use channel::{CompletionChannel, CqEvent};
pub use completion::{Completion, WcFlags, WcOpcode, WcStatus};
pub use events::{
    AsyncEvent, AsyncEventType, AsyncEvents, CqEventType, EventObject, PortEventType, QpEventType,
    SrqEventType, SrqId,
};
pub use moderation::{Moderation, Periods};
pub use queue::{ArmKind, Cq, CqConfig, CqError, CqRef, CqSink, Poller};
pub use wake::{NoWake, Wake};

/// A completion queue's number within its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CqId(pub u32);
