//! The processor time of the background thread beside a thread that receives.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::thread::sleep;

use super::*;

/// Returns the folder of a thread in /proc, once the thread has its name.
fn task(name: &str) -> PathBuf {
    let start = Instant::now();
    loop {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let found = tasks.map(|task| task.unwrap().path()).find(|task| {
            std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim_end() == name)
        });
        match found {
            Some(task) => return task,
            None => assert!(start.elapsed() < Duration::from_secs(20), "no thread {name}"),
        }
        sleep(Duration::from_millis(1));
    }
}

/// Returns the processor time of a thread in clock ticks (proc(5), 10 ms each).
fn ticks(task: &Path) -> u64 {
    let stat = std::fs::read_to_string(task.join("stat")).unwrap();
    // The fields behind the name in brackets, from the third on. The times are 14 and 15.
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// A program that asked for an event sleeps next, in poll(2) for example. If the background thread
/// left the sockets to that program for 1 ms, an acknowledgement would wait so long.
#[test]
fn a_poll_of_an_armed_queue_leaves_the_sockets_to_the_background_thread() {
    let address = Ipv4Addr::new(127, 90, 3, 2);
    let engine =
        Engine::open(&format!("armed={address}").parse().unwrap(), EngineConfig::default());
    let engine = engine.unwrap();
    let channel = Arc::new(CompletionChannel::new(Box::new(crate::cq::NoWake)));
    let silent = engine.device().create_cq(1, None, 0).unwrap();
    let armed = engine.device().create_cq(1, Some(Arc::clone(&channel)), 0).unwrap();
    let expects_poll = |cq: &Cq| {
        assert_eq!(engine.poll(cq, &mut [Completion::default()]), Ok(0));
        engine.shared.polled_at() > Time::ZERO
    };
    for cq in [&silent, &armed] {
        assert!(expects_poll(cq), "no event is due");
        cq.arm(ArmKind::Next);
    }
    assert!(expects_poll(&silent), "there is no channel for the event");
    assert!(!expects_poll(&armed));
    assert!((0..100).any(|_| expects_poll(&armed)), "the thread does not sleep");
    engine.flush_deferred();
    assert!(!expects_poll(&armed), "the program armed the queue again");
    armed.push(Completion::default(), false).unwrap();
    assert_eq!(armed.poll(&mut [Completion::default()]), Ok(1));
    assert!(!expects_poll(&armed), "the event of that completion was not taken");
    assert!(channel.next_event().is_some());
    assert!(expects_poll(&armed), "no event is due");
    assert!(expects_poll(&silent), "the thread polls again");
}

/// An awaited operation polls for a short time, and then its task sleeps.
#[test]
fn a_thread_that_stops_polling_leaves_the_sockets_to_the_background_thread() {
    let address = Ipv4Addr::new(127, 90, 3, 3);
    let engine = open(address, EngineConfig::default()).unwrap();
    for _ in 0..2 {
        engine.progress();
        assert!(engine.shared.polled_at() > Time::ZERO, "the thread polls");
        engine.stop_polling();
        assert_eq!(engine.shared.polled_at(), Time::ZERO, "the thread sleeps next");
        engine.stop_polling();
        assert_eq!(engine.shared.polled_at(), Time::ZERO);
    }
}

#[test]
fn the_background_thread_sleeps_while_another_thread_receives() {
    let address = Ipv4Addr::new(127, 90, 3, 1);
    let engine =
        Engine::open(&format!("taken={address}").parse().unwrap(), EngineConfig::default());
    let engine = engine.unwrap();
    let device = engine.device();
    let cq = device.create_cq(1, None, 0).unwrap();
    let qp = device.create_qp(&qp::init(QpType::Rc, device.alloc_pd().unwrap(), &cq)).unwrap();
    // A packet to the queue pair. Without its number, the packet would go to the common socket.
    let mut packet = [0; 64];
    packet[4..8].copy_from_slice(&qp.qpn().value().to_be_bytes());
    let receiver = lock(&engine.shared.receiver);
    // The socket stays readable, because no other thread may read it.
    let sender = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    sender.send_to(&packet, (address, urxe_wire::ROCE_PORT)).unwrap();
    let thread = task("urxe-taken");
    let before = ticks(&thread);
    sleep(Duration::from_millis(500));
    let used = ticks(&thread) - before;
    assert!(used <= 10, "{used} of 50 ticks");
    assert_eq!(device.counters().value(Counter::DropIcrc), 0, "no thread has read the packet");
    drop(receiver);
    // The packet, which has no valid ICRC, is read at last.
    let start = Instant::now();
    while device.counters().value(Counter::DropIcrc) == 0 {
        assert!(start.elapsed() < Duration::from_secs(20));
        sleep(Duration::from_millis(1));
    }
}
