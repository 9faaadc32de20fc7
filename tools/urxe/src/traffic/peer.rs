//! The other end of a run: a process that this process starts, or a connected host.
//!
//! A started process ends with its parent in every case, because its standard input closes and the
//! kernel sends SIGKILL. The parent notices the end of the process by the end of its standard
//! output. So neither process waits for the other forever.

use std::fmt::Debug;
use std::io::{self, BufRead, BufReader, Read as _, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::thread;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use urxe_stack::escape::Escaped;

/// Time limit for one reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);
/// Time for a process to end after its standard input closed.
const END_LIMIT: Duration = Duration::from_secs(2);

/// The most bytes of a line. The longest replies have the samples of a round.
pub const MAX_LINE: u64 = 64 << 20;

/// Returns the lines of `from`, up to the first that is longer than `max` bytes or is no UTF-8.
pub fn bounded_lines(mut from: impl BufRead, max: u64) -> impl Iterator<Item = String> {
    std::iter::from_fn(move || {
        let mut line = String::new();
        let length = from.by_ref().take(max + 1).read_line(&mut line).ok()?;
        let is_whole = length > 0 && length as u64 <= max;
        is_whole.then(|| line.trim_end_matches(['\r', '\n']).to_owned())
    })
}

/// Failures of the other end.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The process was not started.
    #[error("cannot start the peer process")]
    Start(#[source] io::Error),
    /// The process ended.
    #[error("the peer process ended early ({status})")]
    Ended { status: String },
    /// No reply arrived in time.
    #[error("the peer process has not replied for {} seconds", limit.as_secs())]
    Silent { limit: Duration },
    /// The reply violates the protocol.
    #[error(
        "the peer process replied {} to {command}, which violates the protocol",
        Escaped(reply)
    )]
    Protocol { command: String, reply: String },
    /// A command failed.
    #[error("the peer process: {}", Escaped(.0))]
    Failed(String),
    /// The other end found wrong data.
    #[error("the peer process found wrong data: {}", Escaped(.0))]
    Wrong(String),
}

/// A reply, as its line contains.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply<T> {
    /// The command is done.
    Done(T),
    /// The data is wrong; the text describes the difference.
    Wrong(String),
    /// The command failed; the text is the reason.
    Failed(String),
}

/// Writes one line of JSON.
pub fn write_line(out: &mut (impl Write + ?Sized), what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    out.write_all(&line)?;
    out.flush()
}

/// The other end. Dropping it ends the process or the connection.
pub struct Peer {
    child: Option<Child>,
    commands: Option<Box<dyn Write>>,
    replies: Receiver<String>,
}

impl Peer {
    /// Starts this program with other arguments. Commands and replies use its standard input and
    /// output.
    pub fn start(arguments: &[&str]) -> Result<Self, ProcessError> {
        let program = std::env::current_exe().map_err(ProcessError::Start)?;
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(ProcessError::Start)?;
        let commands = child.stdin.take().map(|stdin| Box::new(stdin) as Box<dyn Write>);
        let replies = read_lines(child.stdout.take().map(BufReader::new));
        Ok(Self { child: Some(child), commands, replies })
    }

    /// Returns a connected peer.
    pub fn connected(
        replies: impl BufRead + Send + 'static,
        commands: impl Write + 'static,
    ) -> Self {
        Self { child: None, commands: Some(Box::new(commands)), replies: read_lines(Some(replies)) }
    }

    /// Sends a command and waits for the reply.
    pub fn call<T: DeserializeOwned>(
        &mut self,
        command: &(impl Serialize + Debug),
    ) -> Result<T, ProcessError> {
        let Some(commands) = &mut self.commands else { return Err(self.ended()) };
        if write_line(commands, command).is_err() {
            return Err(self.ended());
        }
        match self.replies.recv_timeout(REPLY_TIMEOUT) {
            Ok(line) => accepted(line, command),
            Err(RecvTimeoutError::Disconnected) => Err(self.ended()),
            Err(RecvTimeoutError::Timeout) => Err(ProcessError::Silent { limit: REPLY_TIMEOUT }),
        }
    }

    /// Returns a reply that the other end sent without a command, if one has arrived.
    pub fn try_receive<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ProcessError> {
        match self.replies.try_recv() {
            Ok(line) => accepted(line, &"nothing").map(Some),
            Err(TryRecvError::Disconnected) => Err(self.ended()),
            Err(TryRecvError::Empty) => Ok(None),
        }
    }

    /// Fails if the process has ended.
    pub fn check_alive(&mut self) -> Result<(), ProcessError> {
        match self.child.as_mut().map(Child::try_wait) {
            None | Some(Ok(None)) => Ok(()),
            Some(Ok(Some(_)) | Err(_)) => Err(self.ended()),
        }
    }

    fn ended(&mut self) -> ProcessError {
        let status = match self.wait(END_LIMIT) {
            Some(status) => status.to_string(),
            None => "it closed the connection".to_owned(),
        };
        ProcessError::Ended { status }
    }

    fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        const STEP: Duration = Duration::from_millis(2);
        let child = self.child.as_mut()?;
        for _ in 0..limit.as_millis() / STEP.as_millis() {
            match child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) => thread::sleep(STEP),
                Err(_) => return None,
            }
        }
        None
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.commands = None;
        if self.wait(END_LIMIT).is_none()
            && let Some(child) = &mut self.child
        {
            // The process may have ended already; then this call fails without effect.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn accepted<T: DeserializeOwned>(line: String, command: &impl Debug) -> Result<T, ProcessError> {
    match serde_json::from_str(&line) {
        Ok(Reply::Done(reply)) => Ok(reply),
        Ok(Reply::Failed(reason)) => Err(ProcessError::Failed(reason)),
        Ok(Reply::Wrong(reason)) => Err(ProcessError::Wrong(reason)),
        Err(_) => Err(ProcessError::Protocol { command: format!("{command:?}"), reply: line }),
    }
}

/// Reads lines in a thread, which ends with the source. The channel is then disconnected.
fn read_lines(from: Option<impl BufRead + Send + 'static>) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    if let Some(from) = from {
        thread::spawn(move || bounded_lines(from, MAX_LINE).try_for_each(|line| sender.send(line)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_at_the_first_that_is_too_long() {
        let lines =
            |text: &'static str, max| bounded_lines(text.as_bytes(), max).collect::<Vec<_>>();
        assert_eq!(lines("one\ntwo\r\nthree", 8), ["one", "two", "three"]);
        assert_eq!(lines("one\nfour and more\nfive\n", 8), ["one"]);
        assert_eq!(lines("one\n1234567\n12345678\nfive\n", 8), ["one", "1234567"]);
        assert_eq!(lines("", 8), [""; 0]);
    }
}
