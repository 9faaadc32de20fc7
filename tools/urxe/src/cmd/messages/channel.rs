//! Messages over a connection. Each end posts its receives before the other end can send, and a
//! sender waits while all receives of the other end are in use.

use std::sync::{Arc, Mutex, PoisonError};

use urxe::cm::{Connection, ConnectionEvent, Options, Pending};
use urxe::{Access, Gather, MemoryRegion, RecvRequest, SendRequest};

use super::MessagesError;
use crate::traffic::{establish, wait_one};

/// The longest message, in bytes.
pub const MESSAGE_MAX: usize = 64 << 10;
/// Outstanding messages in each direction.
const DEPTH: usize = 16;

/// Returns the connection options of both ends.
pub fn options() -> Options {
    Options::new().max_send_wr(DEPTH as u32).max_recv_wr(DEPTH as u32)
}

/// A connection with buffers; clones are the same.
#[derive(Clone)]
pub struct Messages {
    shared: Arc<Shared>,
}

struct Shared {
    connection: Connection,
    inboxes: MemoryRegion,
    outboxes: MemoryRegion,
    sending: Mutex<Sending>,
}

/// The outboxes are used in turn, and become free in the same order.
#[derive(Default)]
struct Sending {
    posted: u64,
    done: u64,
    is_ended: bool,
}

fn place(number: u64) -> std::ops::Range<usize> {
    let start = number as usize % DEPTH * MESSAGE_MAX;
    start..start + MESSAGE_MAX
}

impl Messages {
    /// Posts the receives and establishes the connection.
    pub fn new(pending: Pending) -> Result<Self, MessagesError> {
        let inboxes = pending.pd().allocate(DEPTH * MESSAGE_MAX, Access::LOCAL_WRITE)?;
        let outboxes = pending.pd().allocate(DEPTH * MESSAGE_MAX, Access::empty())?;
        for number in 0..DEPTH as u64 {
            pending
                .qp()
                .post_recv(&RecvRequest::new(inboxes.slice(place(number))?).wr_id(number))?;
        }
        let (connection, sending) = (establish(pending)?, Mutex::default());
        Ok(Self { shared: Arc::new(Shared { connection, inboxes, outboxes, sending }) })
    }

    /// Sends a message of up to [`MESSAGE_MAX`] bytes. Waits while the limit of outstanding
    /// messages is reached.
    pub fn send(&self, message: &[u8]) -> Result<(), MessagesError> {
        let Shared { connection, outboxes, sending, .. } = &*self.shared;
        let mut sending = sending.lock().unwrap_or_else(PoisonError::into_inner);
        if sending.is_ended {
            return Err(MessagesError::Ended);
        }
        while sending.posted - sending.done >= DEPTH as u64 {
            self.one_done(&mut sending)?;
        }
        let start = place(sending.posted).start;
        outboxes.write(start, message)?;
        let data = match message {
            [] => Gather::EMPTY,
            _ => outboxes.slice(start..start + message.len())?.into(),
        };
        connection.qp().post_send(&SendRequest::send(data).signaled())?;
        sending.posted += 1;
        Ok(())
    }

    fn one_done(&self, sending: &mut Sending) -> Result<(), MessagesError> {
        let sent = wait_one(self.shared.connection.send_cq(), "a message")?;
        let _ = sent.ok_or(MessagesError::Ended)?;
        sending.done += 1;
        Ok(())
    }

    /// Announces the end of the input, and waits until all messages have arrived.
    pub fn end_of_input(&self) -> Result<(), MessagesError> {
        self.send(&[])?;
        let mut sending = self.shared.sending.lock().unwrap_or_else(PoisonError::into_inner);
        sending.is_ended = true;
        while sending.done < sending.posted {
            self.one_done(&mut sending)?;
        }
        Ok(())
    }

    /// Returns the next message of the other end. An empty message is the last. Returns `None` if
    /// the other end disconnected.
    pub fn receive(&self) -> Result<Option<Vec<u8>>, MessagesError> {
        let Shared { connection, inboxes, .. } = &*self.shared;
        let Some(received) = wait_one(connection.recv_cq(), "the receive")? else {
            return Ok(None);
        };
        let inbox = place(received.wr_id);
        let message = inboxes.read_vec(inbox.start, received.byte_len as usize)?;
        let again = RecvRequest::new(inboxes.slice(inbox)?).wr_id(received.wr_id);
        connection.qp().post_recv(&again)?;
        Ok(Some(message))
    }

    /// Disconnects and waits for the end of the connection.
    pub fn disconnect(&self) {
        self.shared.connection.disconnect();
        self.wait_for_end();
    }

    /// Waits until either end disconnects.
    pub fn wait_for_end(&self) {
        let events = self.shared.connection.events();
        while events.wait(None).is_ok_and(|event| event != ConnectionEvent::Disconnected) {}
    }
}
