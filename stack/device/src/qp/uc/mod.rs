//! Unreliable connections: SEND and WRITE in order, whole or not at all, and nobody is told.
//!
//! | file | subject |
//! |---|---|
//! | `requester` | packets of the messages posted, at the path's pace |
//! | `responder` | packets of the peer: a gap drops the message that has it |

mod requester;
mod responder;

pub(super) use self::responder::Responder;
