//! The client: announces the operations, posts them, and checks their results.

use std::net::{TcpStream, ToSocketAddrs};

use urxe::{Data, PlacementType, Remote, Rkey, SendRequest, WcOpcode};

use super::{
    ClientConfig, Mismatch, Operation, PeerConfig, PeerError,
    resources::{BUFFER_MAX, DEPTH_MAX, Resources},
    wire::{BEFORE_FLUSH, Control, Endpoint, FILL},
};

/// The server's region, from the `go` line.
struct Region {
    addr: u64,
    length: u32,
    rkey: Rkey,
    windows: Vec<Rkey>,
}

/// Runs the operations against the server at `host`. Returns whether all operations succeeded.
/// Prints one line for each operation on standard output.
///
/// # Errors
/// [`PeerError`] if the client could not continue. Faults of the operations are in the output.
pub fn run_client(config: &PeerConfig, plan: &ClientConfig, host: &str) -> Result<bool, PeerError> {
    let resources = Resources::open(config, if plan.inline { plan.size } else { 0 })?;
    let addresses: Vec<_> = (host, config.port).to_socket_addrs()?.collect();
    let mut control = Control::new(TcpStream::connect(&addresses[..])?)?;
    let (mtu, rd_atomic) = (config.mtu, config.rd_atomic);
    control.write_line(format_args!(
        "peer 1 {} mtu {mtu} rd_atomic {rd_atomic}",
        resources.endpoint()
    ))?;
    let received = control.read_line()?;
    let peer =
        received.strip_prefix("peer 1 ").and_then(|endpoint| endpoint.parse::<Endpoint>().ok());
    let peer = peer.ok_or(PeerError::Protocol { received, wanted: "peer 1 <endpoint>" })?;
    resources.connect(config, &peer, mtu, rd_atomic)?;

    let mut all_right = true;
    for &operation in &plan.operations {
        let ClientConfig { size, count, .. } = plan;
        match request(&resources, &mut control, plan, operation)? {
            Ok(()) => println!("OK {operation} {size} {count}"),
            Err(wrong) => {
                println!("FAILED {operation} {size} {count}: {wrong}");
                all_right = false;
                // After a completion in error, the queue pair is in the error state, and no
                // operation can follow.
                break;
            }
        }
    }
    control.write_line("bye")?;
    eprintln!("counters: {}", resources.counters());
    Ok(all_right)
}

fn request(
    resources: &Resources,
    control: &mut Control,
    plan: &ClientConfig,
    operation: Operation,
) -> Result<Result<(), Mismatch>, PeerError> {
    control.write_line(format_args!("op {operation} {} {}", plan.size, plan.count))?;
    let received = control.read_line()?;
    if received.starts_with("refuse") {
        return Ok(Err(Mismatch::Other(received)));
    }
    let region = parse_go(&received)
        .ok_or(PeerError::Protocol { received, wanted: "go <addr> <length> <rkey>..." })?;
    match run(resources, plan, operation, &region)? {
        Err(wrong @ Mismatch::Status { status, .. }) => {
            control.write_line(format_args!("failed {}", status.number()))?;
            control.read_line()?;
            Ok(Err(wrong))
        }
        outcome => {
            control.write_line("done")?;
            let verdict = control.read_line()?;
            Ok(outcome.and(if verdict == "ok" { Ok(()) } else { Err(Mismatch::Other(verdict)) }))
        }
    }
}

/// Parses `go <addr, hex> <length> <rkey, hex>...`.
fn parse_go(line: &str) -> Option<Region> {
    let mut words = line.strip_prefix("go ")?.split(' ');
    let addr = u64::from_str_radix(words.next()?, 16).ok()?;
    let length = words.next()?.parse().ok()?;
    let mut keys = words.map(|word| u32::from_str_radix(word, 16).ok().map(Rkey));
    let rkey = keys.next()??;
    Some(Region { addr, length, rkey, windows: keys.collect::<Option<_>>()? })
}

/// Keeps `depth` messages outstanding until all have completed, or one fails.
fn run(
    resources: &Resources,
    plan: &ClientConfig,
    operation: Operation,
    region: &Region,
) -> Result<Result<(), Mismatch>, PeerError> {
    let ClientConfig { size, count, .. } = *plan;
    let depth = plan
        .depth
        .clamp(1, DEPTH_MAX)
        .min(BUFFER_MAX.checked_div(size).unwrap_or(DEPTH_MAX))
        .max(1);
    let slots = if operation.is_atomic() {
        1
    } else {
        region.length.checked_div(size).unwrap_or(count).max(1)
    };
    let (mut posted, mut done) = (0, 0);
    let mut outcome = Ok(());
    while done < count {
        while posted < count && posted - done < depth {
            post(resources, plan, operation, region, posted, depth, slots)?;
            posted += 1;
        }
        let Some(completion) = resources.poll()? else { continue };
        if !completion.status.is_success() {
            return Ok(Err(Mismatch::Status {
                status: completion.status,
                message: completion.wr_id,
            }));
        }
        if completion.wr_id == BEFORE_FLUSH {
            continue;
        }
        let opcode = match operation {
            Operation::Flush => Some(WcOpcode::Flush),
            Operation::AtomicWrite => Some(WcOpcode::AtomicWrite),
            _ => None,
        };
        if outcome.is_ok() && opcode.is_some_and(|opcode| opcode != completion.opcode) {
            outcome = Err(Mismatch::Completion { field: "opcode", message: done });
        }
        if outcome.is_ok() {
            outcome = check(resources, operation, completion.wr_id, done, (depth, slots), size)?;
        }
        done += 1;
    }
    if outcome.is_ok() && operation == Operation::InvThenWrite {
        return write_by_stale_key(resources, plan, region);
    }
    Ok(outcome)
}

/// Writes with the key of an invalidated window, as message `count`. Every outcome is a fault.
fn write_by_stale_key(
    resources: &Resources,
    plan: &ClientConfig,
    region: &Region,
) -> Result<Result<(), Mismatch>, PeerError> {
    let received = String::new();
    let rkey = *region
        .windows
        .first()
        .ok_or(PeerError::Protocol { received, wanted: "a key a message" })?;
    let pieces = resources.pieces(0, plan.size)?;
    let write = SendRequest::write(&pieces[..], Remote { addr: region.addr, rkey });
    resources.post_send(plan.count, &write.wr_id(plan.count.into()))?;
    loop {
        match resources.poll()? {
            Some(done) if done.status.is_success() => {
                return Ok(Err(Mismatch::Other(
                    "the key of an invalidated window was good for a WRITE".to_owned(),
                )));
            }
            Some(done) => {
                return Ok(Err(Mismatch::Status { status: done.status, message: done.wr_id }));
            }
            None => {}
        }
    }
}

/// Checks the result of message `done`.
fn check(
    resources: &Resources,
    operation: Operation,
    found: u64,
    done: u32,
    (depth, slots): (u32, u32),
    size: u32,
) -> Result<Result<(), Mismatch>, PeerError> {
    if found != u64::from(done) {
        return Ok(Err(Mismatch::Order { found, wanted: done }));
    }
    let offset = ((done % depth) * size) as usize;
    if operation.is_read() {
        return resources.verify(offset, done % slots, size);
    }
    if operation.is_atomic() {
        let bytes = resources.read(offset, 8)?;
        let found = bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        let wanted = operation.counter_at(done);
        return Ok(if found == wanted {
            Ok(())
        } else {
            Err(Mismatch::Atomic { message: done, found, wanted })
        });
    }
    Ok(Ok(()))
}

fn post(
    resources: &Resources,
    plan: &ClientConfig,
    operation: Operation,
    region: &Region,
    k: u32,
    depth: u32,
    slots: u32,
) -> Result<(), PeerError> {
    let size = plan.size;
    let offset = ((k % depth) * size) as usize;
    if operation.is_read() || operation.is_atomic() {
        resources.write(offset, &vec![FILL; size as usize])?;
    } else {
        resources.fill(offset, k, size)?;
    }
    let key = if operation.is_windowed() {
        let received = String::new();
        *region
            .windows
            .get(k as usize)
            .ok_or(PeerError::Protocol { received, wanted: "a key a message" })?
    } else {
        region.rkey
    };
    let rkey = Rkey(key.value() ^ plan.rkey_flip);
    let slot = Remote { addr: region.addr + u64::from(k % slots) * u64::from(size), rkey };
    let counter = Remote { addr: region.addr, rkey };
    let pieces = resources.pieces(offset, size)?;
    let copy;
    let data = if plan.inline {
        copy = resources.read(offset, size)?;
        Data::inline(&copy)
    } else {
        Data::from(&pieces[..])
    };
    let request = match operation {
        Operation::Send => SendRequest::send(data),
        Operation::SendImm => SendRequest::send_imm(data, k),
        Operation::SendInv | Operation::InvThenWrite => SendRequest::send_invalidate(data, rkey),
        Operation::Write | Operation::WindowWrite | Operation::Window1Write => {
            SendRequest::write(data, slot)
        }
        Operation::WriteImm => SendRequest::write_imm(data, slot, k),
        Operation::Flush => {
            resources.post_send(k, &SendRequest::write(data, slot).wr_id(BEFORE_FLUSH))?;
            let visible = PlacementType::GLOBAL_VISIBILITY;
            if k % 4 == 3 {
                SendRequest::flush_region(slot, visible)
            } else {
                SendRequest::flush(slot, size, visible)
            }
        }
        Operation::AtomicWrite => SendRequest::atomic_write(data, slot),
        Operation::Read | Operation::WindowRead => SendRequest::read(&pieces[..], slot),
        Operation::FetchAdd => SendRequest::fetch_add(&pieces[..], counter, 3),
        Operation::CompareSwap => {
            SendRequest::compare_swap(&pieces[..], counter, u64::from(k), u64::from(k) + 1)
        }
        Operation::CompareMiss => {
            SendRequest::compare_swap(&pieces[..], counter, u64::MAX, u64::from(k) + 1)
        }
    };
    resources.post_send(k, &request.wr_id(u64::from(k)))
}
