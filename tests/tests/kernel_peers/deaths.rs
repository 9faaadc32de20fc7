//! Processes that are killed or exit in each state of a connection, and the events at the other
//! side, over a kernel and over urxe.

use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use urxe_tests::kernel::{Job, Series, Testbed};
use urxe_tests::programs::deaths::{Remaining, State, process_of, states};

use crate::case::{Case, Failure, must_contain};
use crate::connections::start;
use crate::ends::SILENCE;
use crate::nodes::{Family, Node};

/// How long both ends of all pairs may take to reach their states.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long a killed process may take to disappear, and the kernel's messages on its behalf to
/// arrive. The other side continues afterwards.
const KILL_DURATION: Duration = Duration::from_secs(1);
/// Longer than all repetitions of a REQ: 16 times, 4.8 s apart, and with 6.1 6.4 s apart.
const END_LIMIT: Duration = Duration::from_secs(240);

pub fn cases(both: [Series; 2]) -> Vec<Case> {
    let mut cases = Vec::new();
    for series in both {
        let case = |what: &str, body: fn(&Testbed, Node<'_>) -> Result<(), Failure>| {
            let name = format!("deaths::{what}_{}", series.name());
            Case::new(name, move |testbed| body(testbed, Node::Kernel(testbed.guest(series))))
        };
        cases.push(case("of_and_told_by", |_, kernel| {
            all(kernel, kernel, "KILL", Remaining::Kernel)
        }));
        cases.push(case("of_processes_of", |testbed, kernel| {
            all(kernel, Node::Urxe(testbed), "KILL", Remaining::Kernel)
        }));
        // Over urxe, the watcher of a killed process sends the messages that the kernel sends.
        cases.push(case("of_urxe_processes_of", |testbed, kernel| {
            all(Node::Urxe(testbed), kernel, "KILL", Remaining::Kernel)
        }));
        cases.push(case("keep_alive_of", keep_alive));
        cases.push(
            case("of_urxe_exits_of", |testbed, kernel| {
                all(Node::Urxe(testbed), kernel, "USR2", Remaining::Kernel)
            })
            .long(),
        );
        cases.push(
            case("of_unwatched_processes_of", |testbed, kernel| {
                all(Node::Urxe(testbed), kernel, "KILL", Remaining::NoProcess)
            })
            .long(),
        );
        cases.push(
            case("of_hosts_of", |testbed, kernel| {
                all(kernel, Node::Urxe(testbed), "KILL", Remaining::NoProcess)
            })
            .long(),
        );
    }
    cases
}

/// A kernel answers the probes of urxe, so the connection stays.
fn keep_alive(testbed: &Testbed, kernel: Node<'_>) -> Result<(), Failure> {
    /// Longer than the period and all probes without an answer.
    const WAIT: Duration = Duration::from_secs(7);
    let program = testbed.installed("cm_deaths");
    let ends = |role: &str| {
        format!("{role} a-connected {} 18698", Node::Urxe(testbed).address(Family::V4))
    };
    let words = format!("env URXE_KEEP_ALIVE=1 {} {}", program.display(), ends("stays"));
    let mut stays = start(false, &words, Family::V4, Node::Urxe(testbed), None)?;
    stays.wait_for("listens", START_LIMIT)?;
    let words = format!("cm_deaths {}", ends("dies"));
    let mut active = start(false, &words, Family::V4, kernel, None)?;
    for end in [&mut active, &mut stays] {
        end.wait_for("here, process", START_LIMIT)?;
    }
    sleep(WAIT);
    signal(Node::Urxe(testbed), "USR1", process_of(&stays.output()).into_iter())?;
    stays.wait_for("event\t", START_LIMIT)?;
    must_contain("cm_deaths with URXE_KEEP_ALIVE", &stays.output(), "event\tnothing 0\t")
}

/// A pair of which one end is killed.
struct Pair {
    state: State,
    dies: Job,
    stays: Job,
}

/// Runs all pairs at once, because some of them wait for minutes. All processes of the killed side
/// get the signal at once, so that no process of urxe remains there.
fn all(
    killed: Node<'_>,
    staying: Node<'_>,
    signal_name: &str,
    left: Remaining,
) -> Result<(), Failure> {
    let mut first = start_first(staying, killed)?;
    let mut pairs = Vec::new();
    for (state, port) in states().zip(18_700..) {
        pairs.push(open(state, port, (killed, left), staying)?);
    }
    for Pair { dies, stays, .. } in &mut pairs {
        for end in [dies, stays] {
            end.wait_for("here, process", START_LIMIT)?;
        }
    }
    let pids =
        |of: fn(&Pair) -> &Job| pairs.iter().filter_map(move |pair| process_of(&of(pair).output()));
    drop(first.take());
    // The whole host dies: no RoCE packet enters or leaves any more.
    let silence = match killed {
        Node::Kernel(guest) if left == Remaining::NoProcess => Some(guest.impair(SILENCE)?),
        _ => None,
    };
    signal(killed, signal_name, pids(|pair| &pair.dies))?;
    sleep(KILL_DURATION);
    signal(staying, "USR1", pids(|pair| &pair.stays))?;
    let mut failed = Vec::new();
    let of = pairs.len();
    for Pair { state, stays, .. } in pairs {
        let output = stays
            .finish(END_LIMIT)
            .map_or_else(|error| error.to_string(), |finished| finished.output);
        failed.extend(state.check(left, &output).err());
    }
    if let Some(silence) = silence {
        silence.remove()?;
    }
    Failure::of_pairs(&failed, of)
}

/// Starts a process on the address of the surviving side over urxe, which takes the lowest slot,
/// and is killed with the others. Packets without an identifier of a process, such as a REJ of a
/// peer that never received a reply, arrive at its socket.
fn start_first(staying: Node<'_>, killed: Node<'_>) -> Result<Option<Job>, Failure> {
    let Node::Urxe(_) = staying else { return Ok(None) };
    let words = format!("cm_deaths dies a-address {} 18699", killed.address(Family::V4));
    let mut first = start(false, &words, Family::V4, staying, None)?;
    first.wait_for("here, process", START_LIMIT)?;
    Ok(Some(first))
}

/// Starts the passive end, and the active end when the passive one listens. If no process remains
/// on the killed side, urxe has no watcher there.
fn open(
    state: State,
    port: u16,
    (killed, left): (Node<'_>, Remaining),
    staying: Node<'_>,
) -> Result<Pair, Failure> {
    let passive = if state.is_passive() { killed } else { staying };
    let begin = |role: &str, node| {
        let program = match node {
            Node::Urxe(testbed) if role == "dies" && left == Remaining::NoProcess => {
                let path = testbed.installed("cm_deaths");
                format!("env URXE_WATCHER=off {}", path.display())
            }
            _ => "cm_deaths".to_owned(),
        };
        let words =
            format!("{program} {role} {} {} {port}", state.name, passive.address(Family::V4));
        start(false, &words, Family::V4, node, None)
    };
    let listens = |mut job: Job| job.wait_for("listens", START_LIMIT).map(|()| job);
    if state.is_passive() {
        let dies = listens(begin("dies", killed)?)?;
        Ok(Pair { state, dies, stays: begin("stays", staying)? })
    } else {
        let stays = listens(begin("stays", staying)?)?;
        Ok(Pair { state, dies: begin("dies", killed)?, stays })
    }
}

fn signal(node: Node<'_>, name: &str, pids: impl Iterator<Item = i32>) -> Result<(), Failure> {
    match node {
        Node::Kernel(guest) => {
            let pids: Vec<String> = pids.map(|pid| pid.to_string()).collect();
            guest.run(&format!("kill -{name} {}", pids.join(" ")))?.ok()?;
        }
        Node::Urxe(_) => {
            let signal = match name {
                "KILL" => Signal::KILL,
                "USR2" => Signal::USR2,
                _ => Signal::USR1,
            };
            // A process that has ended has printed the reason.
            let _ = pids.filter_map(Pid::from_raw).try_for_each(|pid| kill_process(pid, signal));
        }
    }
    Ok(())
}
