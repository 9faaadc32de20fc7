//! Moves a device over UDP: which thread receives, which sends, and when one sleeps.
//!
//! ```text
//!   posting thread ----> device.post_send, transmit_pending      (sends itself)
//!   polling thread ----> cq.poll; when empty: receive, transmit  (receives itself, if nobody else is)
//!   waiting thread ----> sleeps on the sockets; receives for all that wait
//!   background thread -> sleeps; receives only while no thread polls or waits; timers; answers that nobody sent
//! ```
//! The background thread is in one of three states. *Idle*: it sleeps on the sockets as well, so
//! that one-sided operations are served in a process that never calls the library. *Polled*: some
//! thread polls, so the sockets are left to it, and the background thread wakes for timers, and a
//! millisecond after the last poll, for acknowledgements that are still owed; who polls and finds
//! nothing sees to what is due as well. *Led*: a thread waits for completions, and sleeps on the
//! sockets itself, so that a packet wakes one thread and not two. Waiting for sockets is `ppoll`
//! rather than epoll: it arms them only while it sleeps, and an armed socket costs the polling
//! thread 0.3 µs a packet.
//!
//! | file | subject |
//! |---|---|
//! | [`engine`] | a device with its ports and its thread: open, post, poll |
//! | `config` | how it is opened, and whom it tells what happens |
//! | `shared` | what its threads share, and what each does with it |
//! | `loopback` | packets between devices of one process, over no socket |
//! | `background` | the thread |
//! | `poll_watchdog` | how it sleeps beside a thread that polls |
//! | [`thread_waker`] | how it is woken, and only while it sleeps |
//! | `leader`, `wait` | which of the waiting threads receives, and how they wait |
//! | [`management`] | datagrams to QP1 that are for this process |
//! | [`connections`] | connections over the engines of a process |
//! | `mad_burst` | whether the thread preempts others when datagrams to QP1 come |
//! | `host` | what connections and engines ask of the host system |
//! | `deferred_mads` | MADs that wait for a listener, or for room in another process |
//! | `groups` | a socket for each multicast group that the device joined |
//! | `ports` | one socket for each address of the device |
//! | `added_ports` | those of addresses that came while it was open |
//! | [`xrcd_lock`] | which process has the XRC domain of a file |
//! | [`eventfd`] | descriptors that count events |

mod added_ports;
mod background;
mod config;
pub mod connections;
mod deferred_mads;
pub mod engine;
pub mod eventfd;
mod groups;
mod host;
mod leader;
mod loopback;
mod mad_burst;
pub mod management;
mod poll_watchdog;
mod ports;
mod shared;
pub mod thread_waker;
mod wait;
pub mod xrcd_lock;

pub use config::{AfterProgress, EngineConfig, Hooks, OpenEngineError, limits_here};
pub use connections::Connections;
pub use engine::Engine;
pub use eventfd::EventWake;
pub use host::Host;
