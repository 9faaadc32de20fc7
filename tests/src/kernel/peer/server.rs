//! The server: prepares memory and receives for each operation, and checks the results.

use std::{
    net::{Ipv6Addr, TcpListener},
    thread,
    time::Duration,
};

use urxe::{Access, Completion, MemoryWindow, MwType, PathMtu, RegionSlice, WcOpcode};

use super::{
    Mismatch, Operation, PeerConfig, PeerError,
    resources::{BUFFER_MAX, DEPTH_MAX, Resources},
    wire::{Control, Endpoint, MISS_VALUE, WINDOWS_MAX},
};

/// One operation of the client.
struct Serving {
    operation: Operation,
    size: u32,
    count: u32,
    slots: u32,
}

/// Serves one client. Returns whether all operations succeeded. Prints `listening <port>` on
/// standard output when the client may connect.
///
/// # Errors
/// [`PeerError`] if the server could not continue.
pub fn serve(config: &PeerConfig) -> Result<bool, PeerError> {
    let resources = Resources::open(config, 0)?;
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, config.port))?;
    println!("listening {}", config.port);
    let mut control = Control::new(listener.accept()?.0)?;
    let received = control.read_line()?;
    let (peer, mtu, rd_atomic) = parse_hello(&received)
        .ok_or(PeerError::Protocol { received, wanted: "peer 1 <endpoint> mtu rd_atomic" })?;
    resources.connect(config, &peer, mtu, rd_atomic)?;
    control.write_line(format_args!("peer 1 {}", resources.endpoint()))?;

    let mut all_right = true;
    loop {
        let line = control.read_line()?;
        if line == "bye" {
            eprintln!("counters: {}", resources.counters());
            return Ok(all_right);
        }
        let Some(serving) = parse_op(&line) else {
            if line.is_empty() {
                return Err(PeerError::Protocol { received: line, wanted: "op or bye" });
            }
            control.write_line("refuse unknown operation, size or count")?;
            all_right = false;
            continue;
        };
        match serving.run(config, &resources, &mut control)? {
            Ok(()) => control.write_line("ok")?,
            Err(wrong) => {
                all_right = false;
                control.write_line(format_args!("bad {wrong}"))?;
            }
        }
    }
}

/// Parses `peer 1 <endpoint> mtu <bytes> rd_atomic <n>`.
fn parse_hello(line: &str) -> Option<(Endpoint, PathMtu, u8)> {
    let words: Vec<_> = line.split(' ').collect();
    let ["peer", "1", endpoint, "mtu", mtu, "rd_atomic", rd_atomic] = words[..] else {
        return None;
    };
    let mtu = mtu.parse().ok()?;
    let path_mtu = PathMtu::at_most(mtu).filter(|known| known.bytes() == mtu)?;
    Some((endpoint.parse().ok()?, path_mtu, rd_atomic.parse().ok()?))
}

/// Parses `op <name> <size> <count>`.
fn parse_op(line: &str) -> Option<Serving> {
    let words: Vec<_> = line.split(' ').collect();
    let ["op", name, size, count] = words[..] else { return None };
    let (operation, size, count) = (name.parse().ok()?, size.parse().ok()?, count.parse().ok()?);
    let slots = BUFFER_MAX.checked_div(size).unwrap_or(count).min(count);
    let possible = match operation {
        _ if operation.is_windowed() => size <= BUFFER_MAX && count <= WINDOWS_MAX,
        Operation::AtomicWrite => size == 8,
        Operation::FetchAdd | Operation::CompareSwap | Operation::CompareMiss => size == 8,
        _ => size <= BUFFER_MAX,
    };
    let slots = if operation.is_atomic() { 1 } else { slots };
    (possible && count > 0).then_some(Serving { operation, size, count, slots })
}

impl Serving {
    fn run(
        &self,
        config: &PeerConfig,
        resources: &Resources,
        control: &mut Control,
    ) -> Result<Result<(), Mismatch>, PeerError> {
        resources.clear()?;
        if self.operation.is_atomic() {
            let start = if self.operation == Operation::CompareMiss { MISS_VALUE } else { 0 };
            resources.write(0, &start.to_ne_bytes())?;
        }
        if self.operation.is_read() {
            for slot in 0..self.slots {
                resources.fill(self.offset(slot), slot, self.size)?;
            }
        }
        let windows = self.bind_windows(resources)?;
        if config.delay_ms == 0 {
            self.post_first(resources)?;
        }
        let used = self.offset(self.slots);
        let keys = [resources.rkey()].into_iter().chain(windows.iter().map(MemoryWindow::rkey));
        let keys: String = keys.map(|key| format!(" {:08x}", key.value())).collect();
        control.write_line(format_args!("go {:x} {used}{keys}", resources.addr()))?;
        if config.delay_ms > 0 {
            thread::sleep(Duration::from_millis(config.delay_ms));
            self.post_first(resources)?;
        }
        let received = if self.operation.takes_receive() {
            self.receive_all(resources, control, &windows)?
        } else {
            Ok(())
        };
        if control.read_line()? != "done" {
            // After a failed operation there is nothing to check.
            return Ok(Ok(()));
        }
        let left = self.check_memory(resources)?;
        Ok(received.and(left))
    }

    /// Binds one window for each message over its slot; windows of empty messages cover all slots.
    fn bind_windows(&self, resources: &Resources) -> Result<Vec<MemoryWindow>, PeerError> {
        let access =
            if self.operation.is_read() { Access::REMOTE_READ } else { Access::REMOTE_WRITE };
        let length = if self.size == 0 { BUFFER_MAX } else { self.size };
        let messages = if self.operation.is_windowed() { 0..self.count } else { 0..0 };
        let kind =
            if self.operation == Operation::Window1Write { MwType::Type1 } else { MwType::Type2 };
        messages
            .map(|message| {
                resources.bind_window(kind, self.offset(message % self.slots), length, access)
            })
            .collect()
    }

    fn offset(&self, slot: u32) -> usize {
        slot as usize * self.size as usize
    }

    fn post_first(&self, resources: &Resources) -> Result<(), PeerError> {
        if !self.operation.takes_receive() {
            return Ok(());
        }
        (0..self.slots.min(DEPTH_MAX)).try_for_each(|message| self.post(resources, message))
    }

    fn post(&self, resources: &Resources, message: u32) -> Result<(), PeerError> {
        let pieces: Vec<RegionSlice<'_>> = if self.operation.is_send() {
            resources.pieces(self.offset(message % self.slots), self.size)?
        } else {
            Vec::new()
        };
        resources.post_recv(message, &pieces)
    }

    /// Polls the completions of the client's messages, and posts further receives.
    fn receive_all(
        &self,
        resources: &Resources,
        control: &Control,
        windows: &[MemoryWindow],
    ) -> Result<Result<(), Mismatch>, PeerError> {
        let (mut done, mut posted) = (0, self.slots.min(DEPTH_MAX));
        let mut outcome = Ok(());
        let mut over = false;
        while done < self.count {
            let Some(completion) = resources.poll()? else {
                if over {
                    return Ok(outcome.and(Err(Mismatch::Missing { done, count: self.count })));
                }
                // The client's messages precede its last line, so one more poll finds all
                // completions.
                over = control.has_line()?;
                continue;
            };
            if !completion.status.is_success() {
                return Ok(Err(Mismatch::Status {
                    status: completion.status,
                    message: completion.wr_id,
                }));
            }
            if outcome.is_ok() {
                outcome = self.check(resources, &completion, done, windows)?;
            }
            done += 1;
            if posted < self.count {
                self.post(resources, posted)?;
                posted += 1;
            }
        }
        Ok(outcome)
    }

    fn check(
        &self,
        resources: &Resources,
        completion: &Completion,
        done: u32,
        windows: &[MemoryWindow],
    ) -> Result<Result<(), Mismatch>, PeerError> {
        // Among operations with receives, only SEND with invalidate has windows.
        let invalidated = windows.get(done as usize).map(MemoryWindow::rkey);
        let opcode =
            if self.operation.is_send() { WcOpcode::Recv } else { WcOpcode::RecvRdmaWithImm };
        let imm = self.operation.has_imm().then_some(done);
        let wrong = |field| Ok(Err(Mismatch::Completion { field, message: done }));
        match completion {
            _ if completion.wr_id != u64::from(done) => {
                Ok(Err(Mismatch::Order { found: completion.wr_id, wanted: done }))
            }
            _ if completion.opcode != opcode => wrong("opcode"),
            _ if completion.byte_len != self.size => wrong("byte_len"),
            _ if completion.imm_data() != imm => wrong("immediate data"),
            _ if completion.invalidated_rkey() != invalidated => wrong("invalidated rkey"),
            _ if self.operation.is_send() => {
                resources.verify(self.offset(done % self.slots), done, self.size)
            }
            _ => Ok(Ok(())),
        }
    }

    /// Checks the memory after the operation.
    fn check_memory(&self, resources: &Resources) -> Result<Result<(), Mismatch>, PeerError> {
        if let Err(wrong) = resources.verify_outside(self.offset(self.slots))? {
            return Ok(Err(wrong));
        }
        if self.operation.is_atomic() {
            let (found, wanted) = (resources.counter()?, self.operation.counter_at(self.count));
            return Ok(if found == wanted {
                Ok(())
            } else {
                Err(Mismatch::Counter { found, wanted })
            });
        }
        if self.operation.is_write() || self.operation.is_read() {
            for slot in 0..self.slots {
                // The last message of a slot is the largest k below count with k % slots == slot.
                let last = (self.count - 1 - slot) / self.slots * self.slots + slot;
                let message = if self.operation.is_write() { last } else { slot };
                if let Err(wrong) = resources.verify(self.offset(slot), message, self.size)? {
                    return Ok(Err(wrong));
                }
            }
        }
        Ok(Ok(()))
    }
}
