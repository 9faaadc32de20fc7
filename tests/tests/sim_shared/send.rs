//! The next sends of a connection whose earlier sends are done, so that its memory is free.

use urxe::*;
use urxe_test_support::simulation::percent;

use super::InjectedBug;
use super::checker::{Check, Due, Message, Record};
use super::lent_part::State;
use super::scenario::{PART, ServerEnd, SharedQueues};

/// The maximum number of operations in a chain on a cell.
const CHAIN: usize = 6;

impl SharedQueues {
    pub fn send(&mut self, nr: usize) -> Result<(), String> {
        let connection = &self.connections[nr];
        if connection.ending.is_some() || !connection.is_idle() {
            return Ok(());
        }
        let queue = match connection.server {
            ServerEnd::Rc(_) => 0,
            ServerEnd::Xrc(_) => 1 + self.rng.index(2),
        };
        let can_end = connection.lent.state == State::Valid;
        match self.rng.index(10) {
            0..5 => self.send_message(nr, queue),
            5 | 6 => self.send_chain(nr, queue),
            7 => self.send_record(nr, queue),
            _ if can_end => self.end_lent_key(nr),
            _ => self.send_message(nr, queue),
        }
    }

    /// Sends a message of any kind, or a WRITE that a READ verifies.
    fn send_message(&mut self, nr: usize, queue: usize) -> Result<(), String> {
        let Self { rng, connections, pools, memory, .. } = self;
        let (connection, pool) = (&mut connections[nr], &pools[queue]);
        let len = if percent(rng, 10) { 0 } else { rng.index(PART) };
        let mut bytes = vec![0; len];
        rng.fill(&mut bytes);
        let start = connection.part * 2 * PART;
        memory.write(start, &bytes).unwrap();
        let data = memory.slice(start..start + len).unwrap();
        let at = connection.target();
        let target = pool.region.remote().slice(at as u64..(at + len) as u64).unwrap();
        let imm = rng.next_u32();
        let (request, opcode, imm, is_write) = match rng.index(4) {
            0 => (SendRequest::send(data), WcOpcode::Send, None, false),
            1 => (SendRequest::send_imm(data, imm), WcOpcode::Send, Some(imm), false),
            2 => (SendRequest::write_imm(data, target, imm), WcOpcode::RdmaWrite, Some(imm), true),
            _ => {
                connection.post(
                    pool,
                    SendRequest::write(data, target),
                    Due::new(WcOpcode::RdmaWrite),
                )?;
                // The READ must return the written bytes.
                let answer = memory.slice(start + PART..start + PART + len).unwrap();
                let due = Due {
                    check: Check::Answer(start + PART, bytes),
                    ..Due::new(WcOpcode::RdmaRead)
                };
                return connection.post(pool, SendRequest::read(answer, target), due);
            }
        };
        connection.post(pool, request, Due::new(opcode))?;
        let message = Message { bytes, imm, queue, is_write, ..Message::default() };
        connection.expected.push_back(message);
        Ok(())
    }

    /// Sends a chain of operations on the cell, each of which finds the result of the preceding
    /// one.
    fn send_chain(&mut self, nr: usize, queue: usize) -> Result<(), String> {
        let Self { rng, connections, pools, memory, bug, .. } = self;
        let (connection, pool) = (&mut connections[nr], &pools[queue]);
        let at = connection.cell() as u64;
        let cell = pool.region.remote().slice(at..at + 8).unwrap();
        let mut after_read = false;
        for place in 0..1 + rng.index(CHAIN) {
            let data = connection.part * 2 * PART + place * 8;
            let answer = memory.slice(data + PART..data + PART + 8).unwrap();
            let found = connection.cells[queue].last();
            let finds = Check::Answer(data + PART, found.to_ne_bytes().to_vec());
            let value = rng.next_u64();
            let (request, opcode, check, leaves) = match rng.index(5) {
                0 => {
                    let add = value | 1;
                    let request = SendRequest::fetch_add(answer, cell, add);
                    (request, WcOpcode::FetchAdd, finds, Some(found.wrapping_add(add)))
                }
                1 | 2 => {
                    let compare =
                        if rng.index(3) == 0 { found ^ 1 << rng.index(64) } else { found };
                    let leaves = if compare == found { value } else { found };
                    let request = SendRequest::compare_swap(answer, cell, compare, value);
                    (request, WcOpcode::CompSwap, finds, Some(leaves))
                }
                3 => {
                    let wrong = u64::from(*bug == Some(InjectedBug::Word));
                    memory.write(data, &(value ^ wrong).to_ne_bytes()).unwrap();
                    let request =
                        SendRequest::atomic_write(memory.slice(data..data + 8).unwrap(), cell);
                    (request, WcOpcode::AtomicWrite, Check::Nothing, Some(value))
                }
                _ => (SendRequest::read(answer, cell), WcOpcode::RdmaRead, finds, None),
            };
            // A READ whose response is lost is executed again, so later requests must not change
            // its data.
            let request = if after_read { request.fenced() } else { request };
            after_read = leaves.is_none();
            if let Some(value) = leaves {
                connection.cells[queue].change(value);
            }
            connection.post(pool, request, Due { queue, check, ..Due::new(opcode) })?;
        }
        Ok(())
    }

    /// Writes a record to the log, flushes it, and puts a mark into the cell that announces the
    /// record.
    fn send_record(&mut self, nr: usize, queue: usize) -> Result<(), String> {
        let Self { rng, connections, pools, memory, .. } = self;
        let (connection, pool) = (&mut connections[nr], &pools[queue]);
        let (len, mark) = (1 + rng.index(PART - 64), rng.next_u64());
        let mut bytes = vec![0; len];
        rng.fill(&mut bytes);
        let (start, place) = (connection.part * 2 * PART, connection.part * PART);
        let mark_at = start + PART - 8;
        memory.write(start, &bytes).unwrap();
        memory.write(mark_at, &mark.to_ne_bytes()).unwrap();
        let log = pool.log.remote().slice(place as u64..(place + len) as u64).unwrap();
        let write = SendRequest::write(memory.slice(start..start + len).unwrap(), log);
        connection.post(pool, write, Due::new(WcOpcode::RdmaWrite))?;
        let both = PlacementType::GLOBAL_VISIBILITY | PlacementType::PERSISTENCE;
        let placement = match pool.log.access().contains(Access::FLUSH_PERSISTENT) {
            true => rng.pick(&[PlacementType::GLOBAL_VISIBILITY, PlacementType::PERSISTENCE, both]),
            false => PlacementType::GLOBAL_VISIBILITY,
        };
        let flush = match rng.index(2) {
            0 => SendRequest::flush(log, len as u32, placement),
            _ => SendRequest::flush_region(pool.log.remote(), placement),
        };
        let lasting = placement.contains(PlacementType::PERSISTENCE);
        let check = Check::Record { lasting };
        connection.post(pool, flush, Due { queue, check, ..Due::new(WcOpcode::Flush) })?;
        let cell = connection.cell() as u64;
        let cell = pool.region.remote().slice(cell..cell + 8).unwrap();
        let request = SendRequest::atomic_write(memory.slice(mark_at..mark_at + 8).unwrap(), cell);
        connection.cells[queue].change(mark);
        connection.post(pool, request, Due { queue, ..Due::new(WcOpcode::AtomicWrite) })?;
        connection.record = Some(Record { queue, place, bytes: bytes.clone(), mark, seen: false });
        if rng.index(2) == 0 {
            let answer = memory.slice(start + PART..start + PART + len).unwrap();
            let due =
                Due { check: Check::Answer(start + PART, bytes), ..Due::new(WcOpcode::RdmaRead) };
            connection.post(pool, SendRequest::read(answer, log), due)?;
        }
        Ok(())
    }

    /// Writes with the lent key, and invalidates it. A READ is left out, because a late duplicate
    /// would be executed again and fail.
    fn end_lent_key(&mut self, nr: usize) -> Result<(), String> {
        let Self { rng, connections, pools, memory, bug, .. } = self;
        let connection = &mut connections[nr];
        let queue = connection.lent.queue;
        let pool = &pools[queue];
        let (range, remote) = (connection.lent.range.clone(), connection.lent.remote);
        let remote = remote.ok_or("lent, and without a key")?;
        let mut bytes = vec![0; range.len()];
        rng.fill(&mut bytes);
        let start = connection.part * 2 * PART;
        memory.write(start, &bytes).unwrap();
        let write = SendRequest::write(memory.slice(start..start + bytes.len()).unwrap(), remote);
        connection.post(pool, write, Due::new(WcOpcode::RdmaWrite))?;
        let sent = bytes[..rng.index(bytes.len())].to_vec();
        let data = memory.slice(start..start + sent.len()).unwrap();
        let request = match *bug {
            Some(InjectedBug::KeyStays) => SendRequest::send(data),
            _ => SendRequest::send_invalidate(data, remote.rkey),
        };
        connection.post(pool, request, Due::new(WcOpcode::Send))?;
        connection.lent.state = State::Leaving;
        let (beside, invalidates) = (Some((range.start, bytes)), Some(remote.rkey));
        let message = Message { bytes: sent, queue, beside, invalidates, ..Message::default() };
        connection.expected.push_back(message);
        Ok(())
    }
}
