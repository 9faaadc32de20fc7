//! The peer process of the default run: this program again, with a hidden option.
//!
//! It ends with its parent, however the parent ends: its standard input closes, and the kernel sends it SIGKILL. The parent learns of its
//! end by the end of its standard output, so neither waits for the other in vain.

use std::io::{self, BufReader};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::protocol::{self, Answer, Order};

/// The hidden option.
pub const PEER_OPTION: &str = "--as-peer-process";
/// Time for one answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// Time for it to end after its standard input closed.
const END_LIMIT: Duration = Duration::from_secs(2);

/// What went wrong with the peer process.
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
    #[error("the peer process has not answered for {} seconds", ANSWER_LIMIT.as_secs())]
    Silent,
    /// It said what the protocol does not have there.
    #[error("the peer process answered {answer:?} to {order:?}")]
    Protocol {
        /// What was ordered.
        order: Box<Order>,
        /// What it answered.
        answer: Box<Answer>,
    },
    /// It could not do something.
    #[error("the peer process: {0}")]
    Failed(String),
    /// It found wrong data.
    #[error("the peer process found wrong data: {0}")]
    Wrong(String),
}

/// The running peer. Dropping it ends it.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    orders: Option<ChildStdin>,
    answers: Receiver<Answer>,
}

impl Peer {
    /// Starts it.
    pub fn start() -> Result<Self, ProcessError> {
        let program = std::env::current_exe().map_err(ProcessError::Start)?;
        let mut child = Command::new(program)
            .args(["pingpong", PEER_OPTION])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(ProcessError::Start)?;
        let orders = child.stdin.take();
        let (sender, answers) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            // Ends with the peer's standard output; the channel then says so.
            thread::spawn(move || {
                let mut stdout = BufReader::new(stdout);
                while let Ok(Some(answer)) = protocol::hear(&mut stdout) {
                    if sender.send(answer).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Self { child, orders, answers })
    }

    /// Gives an order and waits for the answer.
    pub fn ask(&mut self, order: &Order) -> Result<Answer, ProcessError> {
        let Some(orders) = &mut self.orders else { return Err(self.ended()) };
        if protocol::say(orders, order).is_err() {
            return Err(self.ended());
        }
        match self.answers.recv_timeout(ANSWER_LIMIT) {
            Ok(Answer::Failed(reason)) => Err(ProcessError::Failed(reason)),
            Ok(Answer::Wrong(reason)) => Err(ProcessError::Wrong(reason)),
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Disconnected) => Err(self.ended()),
            Err(RecvTimeoutError::Timeout) => Err(ProcessError::Silent),
        }
    }

    /// Gives an order whose answer is [`Answer::Ok`].
    pub fn order(&mut self, order: Order) -> Result<(), ProcessError> {
        match self.ask(&order)? {
            Answer::Ok => Ok(()),
            answer => Err(ProcessError::Protocol { order: Box::new(order), answer: Box::new(answer) }),
        }
    }

    /// Fails if it has ended.
    pub fn check_alive(&mut self) -> Result<(), ProcessError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(_)) | Err(_) => Err(self.ended()),
        }
    }

    fn ended(&mut self) -> ProcessError {
        let status = match self.wait(END_LIMIT) {
            Some(status) => status.to_string(),
            None => "it closed its output".to_owned(),
        };
        ProcessError::Ended { status }
    }

    fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        const STEP: Duration = Duration::from_millis(2);
        for _ in 0..limit.as_millis() / STEP.as_millis() {
            match self.child.try_wait() {
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
        self.orders = None;
        if self.wait(END_LIMIT).is_none() {
            // It has ended meanwhile, or this ends it.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
