//! The events of one side of `rdma_cm` after the other side's process ended, by
//! `tests/programs/cm_deaths.c`. `cm_deaths.tsv` has a line for each state. Its columns hold the
//! events if a kernel or a watcher of urxe remains, if nothing remains, and if only another process
//! of urxe remains.
//!
//! A kernel's connection manager outlives the process, and immediately rejects or disconnects on
//! its behalf. urxe does the same: at exit by the library, otherwise by the watcher.
//!
//! If nothing remains, the surviving peer repeats its request 16 times within 69 to 103 seconds and
//! gets -110, as for a kernel whose host is down. An established connection stays until it is used.
//! Another process of urxe on the same address replies that the connection is unknown.
//!
//! A step is an action, its result, and in brackets the range of seconds if it takes long.

/// The connection manager that remains on the host of the ended process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remaining {
    /// A kernel or a watcher of urxe, which sends the last message of the connection.
    Kernel,
    /// No process: packets to that host are lost.
    NoProcess,
    /// Another process of urxe, without that connection.
    Process,
}

/// A line of the table.
#[derive(Clone, Copy, Debug)]
pub struct State {
    /// The state in which the process is killed.
    pub name: &'static str,
    steps: [&'static str; 3],
}

/// The default range. The longest steps are the unacknowledged message, and the reply to a repeated
/// request.
const SOON: &str = "0-20]";

const EXPECTED: &str = include_str!("../../programs/cm_deaths.tsv");

/// Returns all states.
pub fn states() -> impl Iterator<Item = State> {
    EXPECTED.lines().map(|line| {
        let mut columns = line.split('\t');
        let mut next = || columns.next().unwrap_or_default();
        State { name: next(), steps: [next(), next(), next()] }
    })
}

impl State {
    /// Returns whether the passive side is killed, so that the other side starts second.
    #[must_use]
    pub fn is_passive(&self) -> bool {
        self.name.starts_with("p-")
    }

    /// Checks the output of the surviving side.
    ///
    /// # Errors
    /// The actual and the expected steps.
    pub fn check(&self, left: Remaining, output: &str) -> Result<(), String> {
        let steps = match left {
            Remaining::Kernel => self.steps[0],
            Remaining::NoProcess => self.steps[1],
            Remaining::Process => self.steps[2],
        };
        let expected: Vec<&str> = steps.split("; ").collect();
        let lines: Vec<&str> = output.lines().filter(|line| line.contains('\t')).collect();
        if expected.len() == lines.len()
            && expected.iter().zip(&lines).all(|(step, line)| is_as(step, line))
        {
            return Ok(());
        }
        Err(format!("{}, {left:?} left: expected {steps}, got\n{output}", self.name))
    }
}

/// Returns whether a line is this step, within its time.
fn is_as(step: &str, line: &str) -> bool {
    let (what, bounds) = step.split_once(" [").unwrap_or((step, SOON));
    let seconds = bounds.trim_end_matches(']').split_once('-');
    let seconds = seconds
        .and_then(|(least, most)| Some((least.parse::<u64>().ok()?, most.parse::<u64>().ok()?)));
    let Some((least, most)) = seconds else { return false };
    let mut columns = line.split('\t');
    let mut next = || columns.next().unwrap_or_default();
    let (printed, ms) = (format!("{} {}", next(), next()), next().parse::<u64>());
    printed == what && ms.is_ok_and(|ms| (1_000 * least..=1_000 * most).contains(&ms))
}

/// Returns the process id from the line with which a process reports its state.
#[must_use]
pub fn process_of(output: &str) -> Option<i32> {
    output.lines().find_map(|line| line.strip_prefix("here, process ")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_answer_or_time_is_found() {
        let state = states().find(|state| state.name == "p-dreq-received").unwrap();
        let line = |status: i32, ms: u32| {
            format!("here, process 7\nevent\tRDMA_CM_EVENT_DISCONNECTED {status}\t{ms}\n")
        };
        assert_eq!(state.check(Remaining::Kernel, &line(0, 0)), Ok(()));
        assert_eq!(state.check(Remaining::NoProcess, &line(-110, 77_000)), Ok(()));
        for (status, ms) in [(-110, 0), (-110, 20_000), (-110, 200_000), (0, 77_000)] {
            assert!(state.check(Remaining::NoProcess, &line(status, ms)).is_err(), "{status} {ms}");
        }
        assert!(state.check(Remaining::Kernel, "").is_err());
        assert!(state.check(Remaining::Kernel, &format!("{0}{0}", line(0, 0))).is_err());
        assert_eq!(process_of(&line(0, 0)), Some(7));
    }

    #[test]
    fn each_state_has_its_steps() {
        assert_eq!(states().count(), 12);
        assert!(states().all(|state| state.steps.iter().all(|steps| steps.starts_with("event "))));
    }
}
