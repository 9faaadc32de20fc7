//! Processes that are killed or exit in each state of a connection, on an address of their own, and
//! the events at the other side.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use urxe_tests::programs::deaths::{Remaining, State, process_of, states};

use crate::install::{compile, install};
use crate::pair::exclusive;

/// How long a killed process may take to disappear.
const KILL_DURATION: Duration = Duration::from_secs(1);

/// One side of a connection, which is killed when dropped.
struct Side {
    child: Child,
    output: BufReader<ChildStdout>,
    text: String,
}

impl Side {
    fn start(role: &str, state: State, on: &str, passive: &str, port: u16) -> Self {
        let program = install().path("bin/cm_deaths");
        let (program, name) = (program.display(), state.name);
        let words =
            format!("--link rxe0={on} -- timeout 300 {program} {role} {name} {passive} {port}");
        let mut command = install().run(&words);
        let mut child = command.env("URXE_LOG", "warn").stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output, text: String::new() }
    }

    /// Reads until the output contains this text.
    fn wait_for(&mut self, text: &str) {
        while !self.text.contains(text) {
            assert!(
                self.output.read_line(&mut self.text).unwrap() > 0,
                "{text} was due:\n{}",
                self.text
            );
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(process_of(&self.text).unwrap()).unwrap(), signal).unwrap();
    }

    fn rest(mut self) -> String {
        self.output.read_to_string(&mut self.text).unwrap();
        std::mem::take(&mut self.text)
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // `timeout` forwards the signal to its program.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// Tests all states at once. The processes that `signal` ends share one address, the surviving ones
/// another.
#[track_caller]
fn all(killed: &str, staying: &str, signal: Signal, left: Remaining) {
    let _exclusive = exclusive();
    compile("cm_deaths");
    let mut pairs = Vec::new();
    for (state, port) in states().zip(18_700..) {
        let passive = if state.is_passive() { killed } else { staying };
        let [mut dies, mut stays];
        if state.is_passive() {
            dies = Side::start("dies", state, killed, passive, port);
            dies.wait_for("listens");
            stays = Side::start("stays", state, staying, passive, port);
        } else {
            stays = Side::start("stays", state, staying, passive, port);
            stays.wait_for("listens");
            dies = Side::start("dies", state, killed, passive, port);
        }
        pairs.push((state, dies, stays));
    }
    for (_, dies, stays) in &mut pairs {
        dies.wait_for("here, process");
        stays.wait_for("here, process");
    }
    // This process only remains on the address.
    let second_process = (left == Remaining::Process).then(|| {
        let mut second_process =
            Side::start("dies", states().next().unwrap(), killed, staying, 18_700);
        second_process.wait_for("here, process");
        second_process
    });
    pairs.iter().for_each(|(_, dies, _)| dies.signal(signal));
    sleep(KILL_DURATION);
    pairs.iter().for_each(|(_, _, stays)| stays.signal(Signal::USR1));
    let failed: Vec<String> = pairs
        .into_iter()
        .filter_map(|(state, _, stays)| state.check(left, &stays.rest()).err())
        .collect();
    drop(second_process);
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// A process that remains on the address replies for a killed one that the connection is unknown.
#[test]
fn a_surviving_process_answers_the_peers_of_a_dead_one() {
    all("127.79.0.31", "127.79.0.32", Signal::KILL, Remaining::Process);
}

/// As the kernel does for a process that ends, the library rejects and disconnects at exit.
#[test]
fn the_peers_of_a_process_that_exits_are_told() {
    all("127.79.0.45", "127.79.0.46", Signal::USR2, Remaining::Kernel);
}

#[test]
#[ignore = "two minutes, mostly waiting: cargo xtask programs all"]
fn every_peer_of_a_dead_process_gives_up_in_its_time() {
    all("127.79.0.33", "127.79.0.34", Signal::KILL, Remaining::NoProcess);
}
