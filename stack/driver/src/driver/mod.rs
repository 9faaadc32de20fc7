//! Runs a device over UDP: decides which thread receives, which thread sends, and when each sleeps.
//!
//! ```text
//!   posting thread     device.post_send, transmit_pending: sends itself
//!   polling thread     cq.poll; if empty: receives and transmits, unless another thread receives
//!   waiting thread     sleeps on the sockets; receives for all waiting threads
//!   background thread  sleeps; handles timers; receives if no thread polls or waits
//! ```
//! The background thread is in one of three states:
//!
//! - *Idle*: no thread polls or waits. The background thread sleeps on the sockets, so one-sided
//!   operations are served in a process that never calls the library.
//! - *Polled*: a thread polls, and reads the sockets. The background thread wakes for timers, and 1
//!   ms after the last poll for acknowledgements that are still pending. A polling thread that
//!   finds no packet also handles due timeouts.
//! - *Led*: a thread waits for completions and sleeps on the sockets, so a packet wakes one thread
//!   instead of two.
//!
//! Threads wait for sockets with `ppoll` instead of epoll. `ppoll` arms the sockets only during the
//! sleep; an armed socket costs the polling thread 0.3 µs a packet.
//!
//! | file | subject |
//! |---|---|
//! | [`engine`] | a device with its ports and its thread: open, post, poll |
//! | `config` | the configuration of an engine, its hooks, and the errors of opening it |
//! | `shared` | the state that the threads of an engine share, and the work of each thread |
//! | `loopback` | packets between devices of one process, without a socket |
//! | `background` | the background thread |
//! | `path_errors` | the last ICMP errors of a few peers, for the texts of errors |
//! | `poll_watchdog` | the sleep of the background thread while another thread polls |
//! | [`thread_waker`] | waking a thread only if it sleeps |
//! | `leader`, `wait` | the waiting thread that receives, and the waiting threads that follow it |
//! | [`management`] | datagrams to QP1 of this process |
//! | `connections` | connections over the engines of a process |
//! | `attached` | the part of an engine in them |
//! | `no_connections` | the place of both in a build without the feature `cm` |
//! | `outgoing_mads` | datagrams from QP1 of this process |
//! | `impairment` | the simulated impairment of received packets |
//! | `no_impairment` | its place in a build without the feature `sim` |
//! | `simulated` | a device of a simulated network with its connections |
//! | `last_messages` | the messages to the peers of a process that ends without its library |
//! | `mad_burst` | batch scheduling of the background thread during bursts of MADs |
//! | `host` | the queries of connections to the host system |
//! | `deferred_mads` | MADs that wait for a listener, or for room in another process |
//! | `groups` | a socket for each multicast group that the device joined |
//! | `ports` | all sockets of a device |
//! | `rings` | runs to and from other processes through shared memory |
//! | `added_ports` | the sockets of addresses that were added while the device was open |
//! | [`xrcd_lock`] | the process that has the XRC domain of a file |
//! | [`eventfd`], [`event_descriptor`] | descriptors that count events |

mod added_ports;
#[cfg(feature = "cm")]
mod attached;
mod background;
mod config;
#[cfg(feature = "cm")]
pub mod connections;
mod deferred_mads;
pub mod engine;
pub mod event_descriptor;
pub mod eventfd;
mod groups;
#[cfg(feature = "cm")]
mod host;
#[cfg(feature = "sim")]
mod impairment;
#[cfg(feature = "cm")]
mod last_messages;
mod leader;
mod loopback;
mod mad_burst;
pub mod management;
#[cfg(not(feature = "cm"))]
mod no_connections;
#[cfg(not(feature = "sim"))]
mod no_impairment;
#[cfg(feature = "cm")]
mod outgoing_mads;
mod path_errors;
mod poll_watchdog;
mod ports;
mod rings;
mod shared;
#[cfg(all(feature = "cm", feature = "sim"))]
pub mod simulated;
pub mod thread_waker;
mod wait;
pub mod xrcd_lock;

pub use config::{AfterProgress, EngineConfig, Hooks, OpenEngineError, SPIN_SHARE, limits_here};
#[cfg(feature = "cm")]
pub use connections::Connections;
pub use engine::Engine;
pub use event_descriptor::EventWake;
#[cfg(feature = "cm")]
pub use host::Host;
#[cfg(feature = "cm")]
pub use last_messages::release_watcher;
#[cfg(not(feature = "cm"))]
pub use no_connections::Connections;

#[cfg(not(feature = "cm"))]
use no_connections as attached;
#[cfg(not(feature = "sim"))]
use no_impairment as impairment;
