//! The end that executes commands: a process that another one has started, or a listening host.

use std::error::Error;
use std::io::{self, BufRead, BufReader, Write};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use rustix::process::{Signal, set_parent_process_death_signal};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::peer::{Reply, bounded_lines, write_line};
use crate::output;

/// The most bytes of a command. The longest has the numbers of all queue pairs.
const MAX_COMMAND: u64 = 16 << 20;
/// The most commands that wait while one is executed. The other end sends the next command after it
/// has read the reply, apart from a command that stops the running one.
const MAX_QUEUED: usize = 4;

/// The action at the end of the commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtEnd {
    /// Exit this process, even if another thread is waiting.
    Exit,
    /// The end of the run.
    Return,
}

/// An error that may report wrong data.
pub trait Refusal: Error {
    /// Returns a description of the wrong data, if the error reports any.
    fn wrong_data(&self) -> Option<String>;
}

/// Returns the commands of the parent process, until the parent closes standard input.
pub fn commands_of_parent() -> impl BufRead + Send + 'static {
    // The kernel ends this process if the parent is killed. If the kernel refuses that, the end of
    // standard input has the same effect.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    BufReader::new(io::stdin())
}

/// Reads commands in a thread. The thread calls `on_read` with each command as soon as the command
/// is read, and with `None` at the end.
pub fn read_commands<O: DeserializeOwned + Send + 'static>(
    from: impl BufRead + Send + 'static,
    at_end: AtEnd,
    on_read: impl Fn(Option<&O>) + Send + 'static,
) -> Receiver<O> {
    let (sender, commands) = mpsc::sync_channel(MAX_QUEUED);
    thread::spawn(move || {
        for line in bounded_lines(from, MAX_COMMAND) {
            let Ok(command) = serde_json::from_str(&line) else { break };
            on_read(Some(&command));
            if sender.send(command).is_err() {
                return;
            }
        }
        if at_end == AtEnd::Exit {
            std::process::exit(0);
        }
        on_read(None);
    });
    commands
}

/// Sends the reply to a command.
///
/// # Errors
/// The other end does not read.
pub fn reply<E: Refusal>(to: &mut dyn Write, result: Result<impl Serialize, E>) -> io::Result<()> {
    let reply = result.map_or_else(
        |error| match error.wrong_data() {
            Some(wrong) => Reply::Wrong(wrong),
            None => Reply::Failed(output::describe(&error)),
        },
        Reply::Done,
    );
    write_line(to, &reply)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn commands_wait_in_the_other_end_while_one_is_executed() {
        let read = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&read);
        let lines = BufReader::new("7\n".repeat(1000).leak().as_bytes());
        let commands = read_commands::<u32>(lines, AtEnd::Return, move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(commands.recv(), Ok(7));
        thread::sleep(Duration::from_millis(50));
        // One was taken, and the thread holds one.
        let ahead = read.load(Ordering::Relaxed);
        assert!(ahead <= MAX_QUEUED + 2, "{ahead}");
        assert_eq!(commands.iter().count(), 999);
    }
}
