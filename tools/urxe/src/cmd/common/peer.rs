//! The other end of a run: a process of this program that this one starts, or one that it is
//! connected with.
//!
//! A started process ends with its parent, however the parent ends: its standard input closes, and
//! the kernel sends it SIGKILL. The parent learns of its end by the end of its standard output, so
//! neither waits for the other in vain.

use std::fmt::Debug;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::thread;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::lines;

/// Time for one answer, usually.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// Time for a process to end after its standard input closed.
const END_LIMIT: Duration = Duration::from_secs(2);

/// What went wrong with the other end.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// It was not started.
    #[error("cannot start the peer process")]
    Start(#[source] io::Error),
    /// It ended.
    #[error("the peer process ended early ({status})")]
    Ended {
        /// How.
        status: String,
    },
    /// It does not answer.
    #[error("the peer process has not answered for {} seconds", limit.as_secs())]
    Silent {
        /// How long.
        limit: Duration,
    },
    /// It said what the protocol does not have there.
    #[error("the peer process answered {answer} to {order}")]
    Protocol {
        /// What was ordered.
        order: String,
        /// What it answered.
        answer: String,
    },
    /// It could not do something.
    #[error("the peer process: {0}")]
    Failed(String),
    /// It found wrong data.
    #[error("the peer process found wrong data: {0}")]
    Wrong(String),
}

impl ProcessError {
    /// An answer that does not belong to the order.
    pub fn unexpected(order: &impl Debug, answer: &impl Debug) -> Self {
        Self::Protocol { order: format!("{order:?}"), answer: format!("{answer:?}") }
    }
}

/// An answer that refuses.
#[derive(Clone, Copy, Debug)]
pub enum Refusal<'a> {
    /// It could not be done.
    Failed(&'a str),
    /// The data is not what it should be.
    Wrong(&'a str),
}

/// What the other end answers.
pub trait Reply: DeserializeOwned + Debug + Send + 'static {
    /// The reason, if it refuses.
    fn refusal(&self) -> Option<Refusal<'_>>;
}

/// The other end, which answers `A`. Dropping it ends the process, or the connection.
pub struct Peer<A> {
    child: Option<Child>,
    orders: Option<Box<dyn Write>>,
    answers: Receiver<A>,
}

impl<A: Reply> Peer<A> {
    /// Starts this program with other arguments, to be talked with over its standard input and
    /// output.
    pub fn start(arguments: &[&str]) -> Result<Self, ProcessError> {
        let program = std::env::current_exe().map_err(ProcessError::Start)?;
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(ProcessError::Start)?;
        let orders = child.stdin.take().map(|stdin| Box::new(stdin) as Box<dyn Write>);
        let stdout = child.stdout.take();
        let answers = listen(stdout.map(BufReader::new));
        Ok(Self { child: Some(child), orders, answers })
    }

    /// One that is connected already.
    pub fn connected(answers: impl BufRead + Send + 'static, orders: impl Write + 'static) -> Self {
        Self { child: None, orders: Some(Box::new(orders)), answers: listen(Some(answers)) }
    }

    /// Gives an order and waits for the answer.
    pub fn ask(&mut self, order: &impl Serialize, limit: Duration) -> Result<A, ProcessError> {
        self.tell(order)?;
        self.hear(limit)
    }

    /// Gives an order.
    pub fn tell(&mut self, order: &impl Serialize) -> Result<(), ProcessError> {
        let Some(orders) = &mut self.orders else { return Err(self.ended()) };
        lines::say(orders, order).map_err(|_| self.ended())
    }

    /// Waits for the next answer.
    pub fn hear(&mut self, limit: Duration) -> Result<A, ProcessError> {
        match self.answers.recv_timeout(limit) {
            Ok(answer) => accepted(answer),
            Err(RecvTimeoutError::Disconnected) => Err(self.ended()),
            Err(RecvTimeoutError::Timeout) => Err(ProcessError::Silent { limit }),
        }
    }

    /// The next answer, if it is there.
    pub fn try_hear(&mut self) -> Result<Option<A>, ProcessError> {
        match self.answers.try_recv() {
            Ok(answer) => accepted(answer).map(Some),
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
}

impl<A> Peer<A> {
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

impl<A> Drop for Peer<A> {
    fn drop(&mut self) {
        self.orders = None;
        if self.wait(END_LIMIT).is_none()
            && let Some(child) = &mut self.child
        {
            // It has ended meanwhile, or this ends it.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn accepted<A: Reply>(answer: A) -> Result<A, ProcessError> {
    match answer.refusal() {
        None => Ok(answer),
        Some(Refusal::Failed(reason)) => Err(ProcessError::Failed(reason.to_owned())),
        Some(Refusal::Wrong(reason)) => Err(ProcessError::Wrong(reason.to_owned())),
    }
}

/// Hears answers in a thread, which ends with their source; the channel then says so.
fn listen<A: Reply>(from: Option<impl BufRead + Send + 'static>) -> Receiver<A> {
    let (sender, answers) = mpsc::channel();
    if let Some(mut from) = from {
        thread::spawn(move || {
            while let Ok(Some(answer)) = lines::hear(&mut from) {
                if sender.send(answer).is_err() {
                    return;
                }
            }
        });
    }
    answers
}
