//! Processes that end in each state of a connection, on an address of their own, and the events at
//! the other side.

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

/// The address of a side, and a variable of its environment.
type On<'a> = (&'a str, [&'a str; 2]);

const WATCHED: [&str; 2] = ["URXE_WATCHER", "on"];
const UNWATCHED: [&str; 2] = ["URXE_WATCHER", "off"];

/// One side of a connection, which is killed when dropped.
struct Side {
    child: Child,
    output: BufReader<ChildStdout>,
    text: String,
}

impl Side {
    fn start(role: &str, state: State, on: On<'_>, passive: &str, port: u16) -> Self {
        let program = install().path("bin/cm_deaths");
        let (program, name) = (program.display(), state.name);
        let words =
            format!("--link rxe0={} -- timeout 300 {program} {role} {name} {passive} {port}", on.0);
        let mut command = install().run(&words);
        let [variable, value] = on.1;
        command.env("URXE_LOG", "warn").env(variable, value);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
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
fn all(killed: On<'_>, staying: On<'_>, signal: Signal, left: Remaining) {
    let _exclusive = exclusive();
    compile("cm_deaths");
    let mut pairs = Vec::new();
    for (state, port) in states().zip(18_700..) {
        let [dies, stays] = start_pair(state, killed, staying, port);
        pairs.push((state, dies, stays));
    }
    // This process only remains on the address.
    let second_process = (left == Remaining::Process).then(|| {
        let mut second_process =
            Side::start("dies", states().next().unwrap(), killed, staying.0, 18_700);
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

/// Starts both sides of a connection and waits until they are in the state.
fn start_pair(state: State, killed: On<'_>, staying: On<'_>, port: u16) -> [Side; 2] {
    let passive = if state.is_passive() { killed.0 } else { staying.0 };
    let dying = || Side::start("dies", state, killed, passive, port);
    let other = || Side::start("stays", state, staying, passive, port);
    let [mut dies, mut stays];
    if state.is_passive() {
        dies = dying();
        dies.wait_for("listens");
        stays = other();
    } else {
        stays = other();
        stays.wait_for("listens");
        dies = dying();
    }
    dies.wait_for("here, process");
    stays.wait_for("here, process");
    [dies, stays]
}

/// As the kernel does for a process that ends, the library rejects and disconnects at exit.
#[test]
fn the_peers_of_a_process_that_exits_get_its_last_messages() {
    all(("127.79.0.45", UNWATCHED), ("127.79.0.46", WATCHED), Signal::USR2, Remaining::Kernel);
}

/// The watcher rejects and disconnects for a process that cannot.
#[test]
fn the_peers_of_a_killed_process_get_its_last_messages() {
    all(("127.79.0.47", WATCHED), ("127.79.0.48", WATCHED), Signal::KILL, Remaining::Kernel);
}

#[test]
fn the_peers_of_a_process_that_skips_its_exit_handlers_get_its_last_messages() {
    all(("127.79.0.49", WATCHED), ("127.79.0.50", WATCHED), Signal::HUP, Remaining::Kernel);
}

#[test]
fn the_peers_of_a_process_that_executes_another_program_get_its_last_messages() {
    all(("127.79.0.51", WATCHED), ("127.79.0.52", WATCHED), Signal::URG, Remaining::Kernel);
}

/// A forked child has the objects of its parent, but none of its connections.
#[test]
fn the_end_of_a_forked_child_ends_no_connection() {
    let _exclusive = exclusive();
    compile("cm_deaths");
    let state = states().find(|state| state.name == "a-connected").unwrap();
    let [mut dies, mut stays] =
        start_pair(state, ("127.79.0.53", WATCHED), ("127.79.0.54", WATCHED), 18_700);
    dies.signal(Signal::WINCH);
    dies.wait_for("the child ended");
    stays.signal(Signal::USR1);
    stays.wait_for("event\tnothing 0\t");
}

/// As if the host of the peer had disappeared: the peer sends nothing, and gets no error.
#[test]
fn a_server_with_keep_alive_notices_a_peer_that_disappears() {
    let _exclusive = exclusive();
    compile("cm_deaths");
    let state = states().find(|state| state.name == "a-connected").unwrap();
    let staying = ("127.79.0.56", ["URXE_KEEP_ALIVE", "1"]);
    let [dies, stays] = start_pair(state, ("127.79.0.55", UNWATCHED), staying, 18_700);
    // Longer than a period, so that the living peer has replied.
    sleep(Duration::from_secs(3));
    dies.signal(Signal::KILL);
    sleep(Duration::from_secs(7));
    stays.signal(Signal::USR1);
    let output = stays.rest();
    assert!(output.contains("event\tRDMA_CM_EVENT_DISCONNECTED -110\t"), "{output}");
}

/// Without a watcher, a process that remains on the address replies for a killed one that the
/// connection is unknown.
#[test]
fn a_surviving_process_answers_the_peers_of_a_dead_one() {
    all(("127.79.0.31", UNWATCHED), ("127.79.0.32", WATCHED), Signal::KILL, Remaining::Process);
}

#[test]
#[ignore = "two minutes, mostly waiting: cargo xtask programs all"]
fn every_peer_of_a_dead_process_gives_up_in_its_time() {
    all(("127.79.0.33", UNWATCHED), ("127.79.0.34", WATCHED), Signal::KILL, Remaining::NoProcess);
}
