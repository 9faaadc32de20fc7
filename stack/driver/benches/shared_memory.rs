//! Measures how much memory shared by two processes of a host would gain over loopback sockets:
//! runs of packets one way, and a message back and forth. Both are measured without any protocol,
//! in turn, as ratios; CRC and copies at both ends are included. `cargo bench -p urxe-stack --bench
//! shared_memory`
//!
//! | row | a run is |
//! |---|---|
//! | sockets | built (copy, CRC), sent with GSO, received with GRO, checked and copied out |
//! | ring | built, copied into the ring, copied out of it, checked and copied out again |
//! | ring at best | built in the ring, copied out of it and checked there |
//!
//! `ring` copies each run before it is parsed, because another process can change the ring. urxe
//! does so for short runs, and copies only the headers of a long run.

use std::env;
use std::fs::File;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, SealFlags};
use urxe_stack::memory::Buffer;
use urxe_stack::port::udp::{ReceiveBuffers, UdpConfig, UdpPort};
use urxe_stack::port::{Run, Transmit};

const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(200);
/// Environment variables for the child: its role, and the path of the shared memory.
const ROLE: &str = "URXE_BENCH_ROLE";
const MEMORY: &str = "URXE_BENCH_MEMORY";

const PAYLOAD: usize = 4096;
/// BTH and RETH before the payload; the ICRC follows it.
const HEAD: usize = 28;
const PACKET: usize = HEAD + PAYLOAD + 4;
const PACKETS: usize = 15;
const RUN: usize = PACKETS * PACKET;
const WORKING_SET: usize = 1 << 20;

/// Offsets in the shared memory: words on cache lines of their own, then the slots of the ring.
const PRODUCED: usize = 0;
const CONSUMED: usize = 128;
const STOP: usize = 256;
const SLOTS_AT: usize = 4096;
const SLOT: usize = 64 << 10;
const SLOTS: u64 = 8;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 50, 77, 1));
const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 50, 77, 2));

/// How the bytes are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Sockets,
    Ring,
    RingAtBest,
}

const WAYS: [(Way, &str); 3] =
    [(Way::Sockets, "sockets"), (Way::Ring, "ring"), (Way::RingAtBest, "ring-at-best")];

fn main() {
    match env::var(ROLE) {
        Ok(role) => child(&role),
        Err(_) => parent(),
    }
}

fn parent() {
    for (what, prefix) in
        [("runs of 15 packets of 4 KiB, one way", "stream"), ("64 bytes to and fro", "pingpong")]
    {
        let mut rates = [const { Vec::new() }; WAYS.len()];
        for _ in 0..ROUNDS {
            for ((way, name), rates) in WAYS.into_iter().zip(&mut rates) {
                rates.push(round(way, &format!("{prefix}-{name}"), prefix == "stream"));
            }
        }
        let over = |way: usize| {
            let mut ratios: Vec<f64> =
                rates[way].iter().zip(&rates[0]).map(|(ring, socket)| ring / socket).collect();
            ratios.sort_by(f64::total_cmp);
            ratios[ROUNDS / 2]
        };
        let middle = |way: usize| {
            let mut rates = rates[way].clone();
            rates.sort_by(f64::total_cmp);
            rates[ROUNDS / 2]
        };
        println!(
            "{what}: sockets {:.0}/s; a ring {:.2} of that, a ring at best {:.2}",
            middle(0),
            over(1),
            over(2)
        );
    }
}

/// Runs one round with its own child. Returns runs or round trips a second.
fn round(way: Way, role: &str, is_stream: bool) -> f64 {
    let file = rustix::fs::memfd_create("ring", MemfdFlags::ALLOW_SEALING).expect("shared memory");
    let len = SLOTS_AT + SLOTS as usize * SLOT;
    rustix::fs::ftruncate(&file, len as u64).expect("a length");
    // Memory that cannot shrink is copied by plain instructions.
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).expect("a seal");
    let shared = Buffer::of_file(&file, 0, len).expect("a mapping");
    let place = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let mut command = Command::new(env::current_exe().expect("this program"));
    let child =
        command.env(ROLE, role).env(MEMORY, place).stdout(Stdio::piped()).spawn().expect("a child");
    let port = UdpPort::open(UdpConfig::new(HERE)).expect("a port");
    // Until the child is ready.
    while load(&shared, STOP) == 0 {
        thread::yield_now();
    }
    let rate = if is_stream { produce(way, &shared, &port) } else { ping(way, &shared, &port) };
    store(&shared, STOP, 2);
    let arrived = told_by(child);
    // For a stream, only the arrived runs count.
    if is_stream { arrived } else { rate }
}

/// Returns the figure that the child prints at its end.
fn told_by(mut child: Child) -> f64 {
    let mut text = String::new();
    let mut output = child.stdout.take().expect("piped");
    output.read_to_string(&mut text).expect("a figure");
    assert!(child.wait().expect("an end").success());
    text.trim().parse().expect("a figure")
}

fn child(role: &str) {
    let (kind, name) = role.split_once('-').expect("a role");
    let (way, _) = WAYS.into_iter().find(|(_, of)| *of == name).expect("a way");
    let file = File::options()
        .read(true)
        .write(true)
        .open(env::var(MEMORY).expect("a place"))
        .expect("shared memory");
    let shared = Buffer::of_file(&file, 0, SLOTS_AT + SLOTS as usize * SLOT).expect("a mapping");
    let port = UdpPort::open(UdpConfig::new(THERE)).expect("a port");
    store(&shared, STOP, 1);
    if kind == "stream" {
        println!("{}", consume(way, &shared, &port));
    } else {
        pong(way, &shared, &port);
        println!("0");
    }
}

fn load(shared: &Buffer, at: usize) -> u64 {
    shared.load_u64(at).expect("inside")
}

fn store(shared: &Buffer, at: usize, value: u64) {
    shared.store_u64(at, value).expect("inside");
}

/// Waits a moment; yields the processor now and then, as a device does.
fn pause(looks: &mut u32) {
    *looks += 1;
    if looks.is_multiple_of(50) {
        thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

fn slot(number: u64) -> usize {
    SLOTS_AT + (number % SLOTS) as usize * SLOT
}

fn send(port: &UdpPort, to: IpAddr, bytes: &[u8]) {
    let from = port.address();
    port.transmit(&Run {
        from,
        from_port: urxe_wire::ROCE_PORT,
        to,
        bytes,
        segment_size: PACKET.min(bytes.len()),
        traffic_class: 0,
        hop_limit: 0,
    });
}

/// Sends runs for a round. Returns runs a second.
fn produce(way: Way, shared: &Buffer, port: &UdpPort) -> f64 {
    let source = vec![7_u8; WORKING_SET];
    let mut run = vec![0_u8; RUN];
    let (start, mut number, mut at, mut looks) = (Instant::now(), 0, 0, 0);
    while start.elapsed() < ROUND {
        if way != Way::Sockets && number - load(shared, CONSUMED) == SLOTS {
            pause(&mut looks);
            continue;
        }
        for packet in 0..PACKETS {
            let payload = &source[at..at + PAYLOAD];
            at = (at + PAYLOAD) % WORKING_SET;
            let begin = packet * PACKET;
            if way == Way::RingAtBest {
                let there = slot(number) + begin;
                shared.write(there + HEAD, payload).expect("inside");
                shared
                    .write(there + HEAD + PAYLOAD, &crc32fast::hash(payload).to_ne_bytes())
                    .expect("inside");
            } else {
                let (body, icrc) = run[begin..begin + PACKET].split_at_mut(HEAD + PAYLOAD);
                body[HEAD..].copy_from_slice(payload);
                icrc.copy_from_slice(&crc32fast::hash(&body[HEAD..]).to_ne_bytes());
            }
        }
        match way {
            Way::Sockets => send(port, THERE, &run),
            Way::Ring => shared.write(slot(number), &run).expect("inside"),
            Way::RingAtBest => {}
        }
        number += 1;
        if way != Way::Sockets {
            store(shared, PRODUCED, number);
        }
    }
    number as f64 / start.elapsed().as_secs_f64()
}

/// Receives runs until the parent stops the round. Returns runs a second.
fn consume(way: Way, shared: &Buffer, port: &UdpPort) -> f64 {
    let mut target = vec![0_u8; WORKING_SET];
    let mut private = vec![0_u8; RUN];
    let mut buffers = ReceiveBuffers::new(4).unwrap();
    let (mut at, mut packets, mut number, mut looks) = (0, 0_u64, 0, 0);
    let mut first = None;
    let mut take = |packet: &[u8], target: &mut Vec<u8>| {
        let (body, icrc) = packet.split_at(HEAD + PAYLOAD);
        assert_eq!(icrc, crc32fast::hash(&body[HEAD..]).to_ne_bytes());
        target[at..at + PAYLOAD].copy_from_slice(&body[HEAD..]);
        at = (at + PAYLOAD) % WORKING_SET;
    };
    let mut last = Instant::now();
    while load(shared, STOP) != 2 {
        if way == Way::Sockets {
            if port.receive(&mut buffers).expect("received") == 0 {
                pause(&mut looks);
                continue;
            }
            for datagrams in buffers.iter() {
                for packet in datagrams.segments() {
                    take(packet, &mut target);
                    packets += 1;
                }
            }
        } else {
            if load(shared, PRODUCED) == number {
                pause(&mut looks);
                continue;
            }
            if way == Way::Ring {
                shared.read(slot(number), &mut private).expect("inside");
                private.chunks(PACKET).for_each(|packet| take(packet, &mut target));
            } else {
                for packet in 0..PACKETS {
                    let (begin, to) = (slot(number) + packet * PACKET + HEAD, packet * PAYLOAD);
                    let mut icrc = [0; 4];
                    shared.read(begin, &mut target[to..to + PAYLOAD]).expect("inside");
                    shared.read(begin + PAYLOAD, &mut icrc).expect("inside");
                    assert_eq!(icrc, crc32fast::hash(&target[to..to + PAYLOAD]).to_ne_bytes());
                }
            }
            packets += PACKETS as u64;
            number += 1;
            store(shared, CONSUMED, number);
        }
        last = Instant::now();
        first.get_or_insert(last);
    }
    let time = first.map_or(Duration::MAX, |first| last - first);
    packets as f64 / PACKETS as f64 / time.as_secs_f64()
}

/// Sends a message and waits for the reply, for a round. Returns round trips a second.
fn ping(way: Way, shared: &Buffer, port: &UdpPort) -> f64 {
    let mut buffers = ReceiveBuffers::new(1).unwrap();
    let (start, mut number, mut looks, mut message) = (Instant::now(), 0, 0, [0_u8; 64]);
    while start.elapsed() < ROUND {
        number += 1;
        if way == Way::Sockets {
            send(port, THERE, &message);
            while port.receive(&mut buffers).expect("received") == 0 {
                pause(&mut looks);
            }
        } else {
            shared.write(slot(0), &message).expect("inside");
            store(shared, PRODUCED, number);
            while load(shared, CONSUMED) != number {
                pause(&mut looks);
            }
            shared.read(slot(1), &mut message).expect("inside");
        }
    }
    number as f64 / start.elapsed().as_secs_f64()
}

/// Replies until the parent stops the round.
fn pong(way: Way, shared: &Buffer, port: &UdpPort) {
    let mut buffers = ReceiveBuffers::new(1).unwrap();
    let (mut number, mut looks, mut message) = (0, 0, [0_u8; 64]);
    while load(shared, STOP) != 2 {
        if way == Way::Sockets {
            if port.receive(&mut buffers).expect("received") > 0 {
                send(port, HERE, &message);
            } else {
                pause(&mut looks);
            }
        } else if load(shared, PRODUCED) != number {
            number += 1;
            shared.read(slot(0), &mut message).expect("inside");
            shared.write(slot(1), &message).expect("inside");
            store(shared, CONSUMED, number);
        } else {
            pause(&mut looks);
        }
    }
}
