//! Messages and completions of both ends.

use urxe::cm::{Connection, Options, Pending};
use urxe::{Access, Data, MemoryRegion, RecvRequest, RemoteRegion, Rkey, SendRequest};

use super::{MAX_SIZE, RpingError};
use crate::traffic::{establish, wait_one};

/// Bytes of an announcement: address, key and length, big-endian.
const INFO_LEN: usize = 16;

/// Returns the connection options of the original.
pub fn options() -> Options {
    Options::new().responder_resources(1).initiator_depth(1).max_send_wr(16).max_recv_wr(2)
}

/// A connection with a buffer for the other end's messages.
pub struct Peer {
    pub connection: Connection,
    inbox: MemoryRegion,
}

impl Peer {
    /// Posts the first receive before the other end can send, then establishes the connection.
    pub fn new(pending: Pending) -> Result<Self, RpingError> {
        let inbox = pending.pd().allocate(INFO_LEN, Access::LOCAL_WRITE)?;
        pending.qp().post_recv(&RecvRequest::new(inbox.slice(..)?))?;
        Ok(Self { connection: establish(pending)?, inbox })
    }

    /// Registers memory that the other end reads and writes.
    pub fn allocate(&self, len: usize) -> Result<MemoryRegion, RpingError> {
        let all = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        Ok(self.connection.pd().allocate(len, all)?)
    }

    /// Announces memory. Any announcement means "go ahead".
    pub fn announce(&self, memory: RemoteRegion) -> Result<(), RpingError> {
        let mut info = [0; INFO_LEN];
        info[..8].copy_from_slice(&memory.addr.to_be_bytes());
        info[8..12].copy_from_slice(&memory.rkey.0.to_be_bytes());
        info[12..].copy_from_slice(&(memory.len as u32).to_be_bytes());
        self.perform("SEND", &SendRequest::send(Data::inline(&info)))
    }

    /// Posts a request and waits for its completion.
    pub fn perform(&self, what: &'static str, request: &SendRequest<'_>) -> Result<(), RpingError> {
        let request = request.clone().signaled();
        self.connection.qp().post_send(&request)?;
        wait_one(self.connection.send_cq(), what)?
            .map(|_| ())
            .ok_or(RpingError::Ended { when: "during a ping" })
    }

    /// Waits for the other end's announcement. Returns `None` if the other end disconnected.
    pub fn receive(&self) -> Result<Option<RemoteRegion>, RpingError> {
        let Some(message) = wait_one(self.connection.recv_cq(), "the receive")? else {
            return Ok(None);
        };
        let info: [u8; INFO_LEN] =
            match self.inbox.read_vec(0, message.byte_len as usize)?.try_into() {
                Ok(info) => info,
                Err(_) => return Err(RpingError::Message { len: message.byte_len }),
            };
        self.connection.qp().post_recv(&RecvRequest::new(self.inbox.slice(..)?))?;
        let word =
            |at: usize| u32::from_be_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
        let (addr, rkey, len) =
            (u64::from(word(0)) << 32 | u64::from(word(4)), Rkey(word(8)), word(12));
        if len > MAX_SIZE {
            return Err(RpingError::Announced { len });
        }
        Ok(Some(RemoteRegion { addr, len: len.into(), rkey }))
    }
}
