//! Completions, completion queues, completion channels and asynchronous events.
//!
//! | file | subject |
//! |---|---|
//! | [`queue`] | completion queues: push, poll, arm, overrun, resize; polling one by one |
//! | [`moderation`] | one event for several completions |
//! | [`channel`] | the events of armed completion queues |
//! | [`events`] | asynchronous events and their acknowledgement |

pub mod channel;
pub mod events;
pub mod moderation;
pub mod queue;
#[cfg(test)]
mod test_wake;

pub use urxe_types::completion;
pub use urxe_types::ids::{CqId, SrqId};
pub use urxe_types::wake;

pub use channel::{CompletionChannel, CqEvent};
pub use completion::{Completion, WcError, WcFlags, WcOpcode, WcStatus};
pub use events::{
    AsyncEvent, AsyncEventType, AsyncEvents, CqEventType, EventObject, PortEventType, QpEventType,
    SrqEventType,
};
pub use moderation::{Moderation, ModerationTimers};
pub(crate) use queue::PolledSends;
pub use queue::{ArmKind, Cq, CqConfig, CqError, CqRef, CqWriter, Poller};
pub use wake::{NoWake, Wake};
