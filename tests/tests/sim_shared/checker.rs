//! Compares completions and memory with the posted requests.

use std::collections::VecDeque;

use urxe::*;

use super::InjectedBug;
use super::ending::Ending;
use super::lent_part::{LOCAL, State};
use super::scenario::{Connection, PART, ServerEnd, SharedQueues};

/// A message that consumes a receive.
#[derive(Debug, Default)]
pub struct Message {
    pub bytes: Vec<u8>,
    pub imm: Option<u32>,
    /// Whether the data goes to the target instead of the receive.
    pub is_write: bool,
    /// The shared receive queue.
    pub queue: usize,
    /// The key that the message invalidates.
    pub invalidates: Option<Rkey>,
    /// Bytes that must be in the queue's region before the message arrives.
    pub beside: Option<(usize, Vec<u8>)>,
}

/// An expected completion of a send.
#[derive(Debug)]
pub struct Due {
    pub wr_id: u64,
    pub opcode: WcOpcode,
    pub queue: usize,
    pub check: Check,
}

/// The check at the completion of a send.
#[derive(Debug)]
pub enum Check {
    Nothing,
    /// These bytes must be at this offset of the clients' memory.
    Answer(usize, Vec<u8>),
    /// The connection's record must be in its log.
    Record {
        lasting: bool,
    },
    /// The request must have been refused.
    Refused,
}

/// The record that a connection wrote to its log, then flushed, before it put the mark into its
/// cell.
pub struct Record {
    pub queue: usize,
    pub place: usize,
    pub bytes: Vec<u8>,
    pub mark: u64,
    /// Whether the mark was found and the record compared.
    pub seen: bool,
}

impl Due {
    pub fn new(opcode: WcOpcode) -> Self {
        Self { wr_id: 0, opcode, queue: 0, check: Check::Nothing }
    }
}

/// The possible values of a cell: eight bytes of the server that one connection changes by atomic
/// operations, each executed once and in order.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// The value after the last completed change.
    done: u64,
    /// The values after each posted change that has not completed.
    open: VecDeque<u64>,
}

impl Cell {
    pub fn new(value: u64) -> Self {
        Self { done: value, open: VecDeque::new() }
    }

    /// Returns the value after the last completed operation.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Returns the value after all posted operations, which the next operation finds.
    pub fn last(&self) -> u64 {
        self.open.back().copied().unwrap_or(self.done)
    }

    /// Records a posted operation that leaves this value.
    pub fn change(&mut self, value: u64) {
        self.open.push_back(value);
    }

    /// Records the completion of the oldest operation.
    pub fn complete(&mut self) {
        if let Some(value) = self.open.pop_front() {
            self.done = value;
        }
    }

    /// Returns whether the cell may hold this value now. Posted operations may have been executed
    /// already, in order.
    pub fn may_hold(&self, value: u64) -> bool {
        self.done == value || self.open.contains(&value)
    }
}

impl ServerEnd {
    fn state(&self) -> QpState {
        match self {
            Self::Rc(qp) => qp.state(),
            Self::Xrc(target) => target.state(),
        }
    }
}

impl SharedQueues {
    /// Checks all completions, and the memory that may change at any time.
    pub fn check(&mut self) -> Result<(), String> {
        for queue in 0..self.pools.len() {
            while let Some(wc) = self.pools[queue].cq.poll_one().unwrap() {
                let verdict = match wc.wr_id & LOCAL {
                    0 => self.received(queue, &wc),
                    _ => self.lent(&wc),
                };
                verdict.map_err(|what| format!("queue {queue}: {what}: {wc:?}"))?;
            }
        }
        let mut completions = Vec::new();
        while let Some(wc) = self.client_cq.poll_one().unwrap() {
            completions.push(wc);
        }
        if self.bug == Some(InjectedBug::Order) {
            let pair = completions.windows(2).position(|two| two[0].qp_num == two[1].qp_num);
            if let Some(at) = pair {
                completions.swap(at, at + 1);
            }
        }
        for wc in &completions {
            self.sent(wc).map_err(|what| format!("{what}: {wc:?}"))?;
        }
        while let Some(event) = self.server.events().try_next() {
            self.tally.limit_events +=
                u32::from(event.event_type() == AsyncEventType::SrqLimitReached);
        }
        (0..self.connections.len())
            .try_for_each(|nr| self.cells(nr).map_err(|what| format!("connection {nr}: {what}")))
    }

    /// Checks a received message.
    fn received(&mut self, queue: usize, wc: &Completion) -> Result<(), String> {
        let Self { pools, connections, tally, bug, .. } = self;
        let pool = &mut pools[queue];
        let buffer = pool.posted.remove(&wc.wr_id).ok_or("it completed, and is not posted")?;
        pool.free.push(buffer);
        let connection = connections.iter_mut().find(|c| c.server.qpn() == wc.qp_num);
        let connection = connection.ok_or("it names no queue pair")?;
        if wc.status == WcStatus::WrFlushErr && connection.ending.is_some() {
            tally.flushed += 1;
            return Ok(());
        }
        if wc.status != WcStatus::Success {
            return Err("it failed".into());
        }
        let message = connection.expected.pop_front().ok_or("no end sent this message")?;
        let place = if message.is_write { connection.target() } else { buffer * PART };
        let mut bytes = pool.region.read_vec(place, message.bytes.len()).unwrap();
        if *bug == Some(InjectedBug::Byte) && tally.received == 20 {
            bytes.push(0);
        }
        tally.received += 1;
        let actual = (wc.byte_len as usize, wc.imm_data(), queue);
        if actual != (message.bytes.len(), message.imm, message.queue) || bytes != message.bytes {
            return Err("it is not the next message of its connection".into());
        }
        if wc.invalidated_rkey() != message.invalidates {
            return Err(format!("expected the invalidation of {:?}", message.invalidates));
        }
        if let Some((at, bytes)) = message.beside
            && pool.region.read_vec(at, bytes.len()).unwrap() != bytes
        {
            return Err("the WRITE before this message is not in memory".into());
        }
        if message.invalidates.is_some() {
            connection.lent.state = State::Free;
            tally.by_service[usize::from(connection.server.is_xrc())].invalidated += 1;
        }
        Ok(())
    }

    /// Checks the completion of a request that makes a key valid.
    fn lent(&mut self, wc: &Completion) -> Result<(), String> {
        let nr = (wc.wr_id & !LOCAL) as usize;
        let connection = self.connections.get_mut(nr).ok_or("of no connection")?;
        let (lent, is_ending) = (&mut connection.lent, connection.ending.is_some());
        if lent.state != State::Posted {
            return Err("this request was not posted".into());
        }
        if wc.status == WcStatus::Success && wc.opcode == lent.opcode() {
            lent.state = State::Valid;
            return Ok(());
        }
        if is_ending { Ok(()) } else { Err("the key is not valid".into()) }
    }

    /// Checks the completion of a send.
    fn sent(&mut self, wc: &Completion) -> Result<(), String> {
        let Self { pools, connections, tally, bug, memory, .. } = self;
        let connection = connections.iter_mut().find(|c| c.client.qpn() == wc.qp_num);
        let connection = connection.ok_or("it names no queue pair")?;
        let due = connection.due.pop_front().ok_or("no completion was expected")?;
        if due.wr_id != wc.wr_id {
            return Err(format!("expected {due:?}"));
        }
        let done = &mut tally.by_service[usize::from(connection.server.is_xrc())];
        if matches!(due.check, Check::Refused) {
            // The NAK may get lost, and a responder in the error state sends it only once.
            let is_refused = match wc.status {
                WcStatus::RemAccessErr => true,
                WcStatus::RetryExcErr => connection.server.state() == QpState::Err,
                _ => false,
            };
            done.refused += 1;
            return if is_refused { Ok(()) } else { Err("it should have been refused".into()) };
        }
        if !wc.status.is_success() {
            return if connection.ending.is_some() { Ok(()) } else { Err("a send failed".into()) };
        }
        if wc.opcode != due.opcode {
            return Err(format!("it should be {:?}", due.opcode));
        }
        let (cell, pool) = (connection.cell(), &pools[due.queue]);
        match wc.opcode {
            WcOpcode::FetchAdd | WcOpcode::CompSwap | WcOpcode::AtomicWrite => {
                let cell = &mut connection.cells[due.queue];
                let before = cell.done();
                cell.complete();
                let is_swap = wc.opcode == WcOpcode::CompSwap;
                done.swapped += u32::from(is_swap && cell.done() != before);
                let is_word = wc.opcode == WcOpcode::AtomicWrite;
                done.words += u32::from(is_word);
                done.atomics += u32::from(!is_word);
            }
            WcOpcode::Flush => done.flushes += 1,
            _ => {}
        }
        if *bug == Some(InjectedBug::Twice) && wc.opcode == WcOpcode::FetchAdd {
            pool.region.fetch_add_u64(cell, 1).unwrap();
        }
        match due.check {
            Check::Nothing | Check::Refused => Ok(()),
            Check::Answer(at, bytes) => match memory.read_vec(at, bytes.len()).unwrap() == bytes {
                true => Ok(()),
                false => Err("it brings other bytes".into()),
            },
            Check::Record { lasting } => {
                done.lasting += u32::from(lasting);
                let record = connection.record.as_ref().ok_or("a FLUSH of nothing")?;
                if *bug == Some(InjectedBug::Unflushed) {
                    pool.log.write(record.place, &[!record.bytes[0]]).unwrap();
                }
                match pool.log.read_vec(record.place, record.bytes.len()).unwrap() == record.bytes {
                    true => Ok(()),
                    false => Err("the flushed bytes are not in memory".into()),
                }
            }
        }
    }

    /// Checks the cells of a connection, whose operations are executed once and in order, and that
    /// its record precedes the mark.
    fn cells(&mut self, nr: usize) -> Result<(), String> {
        let connection = &mut self.connections[nr];
        let queues = if connection.server.is_xrc() { 1..3 } else { 0..1 };
        for queue in queues {
            let pool = &self.pools[queue];
            let value = pool.region.load_u64(connection.cell()).unwrap();
            if !connection.cells[queue].may_hold(value) {
                let cell = &connection.cells[queue];
                return Err(format!("its cell in queue {queue} holds {value:#x}, not {cell:x?}"));
            }
            let is_new = |record: &&mut Record| {
                (record.queue, record.mark, record.seen) == (queue, value, false)
            };
            if let Some(record) = connection.record.as_mut().filter(is_new) {
                record.seen = true;
                if self.bug == Some(InjectedBug::Overtaken) {
                    pool.log.write(record.place, &[!record.bytes[0]]).unwrap();
                }
                if pool.log.read_vec(record.place, record.bytes.len()).unwrap() != record.bytes {
                    return Err(
                        "the atomic write is in memory, but the bytes flushed before it are not"
                            .into(),
                    );
                }
            }
        }
        Ok(())
    }

    /// Checks that refused requests have changed nothing.
    pub fn check_memory(&self) -> Result<(), String> {
        let changed = |connection: &Connection| {
            let Some(Ending::Refused { queue, image }) = &connection.ending else { return false };
            self.pools[*queue].region.read_vec(connection.target(), PART).unwrap() != *image
        };
        match self.connections.iter().position(changed) {
            Some(nr) => Err(format!("connection {nr} was refused, and its memory changed")),
            None => Ok(()),
        }
    }
}
