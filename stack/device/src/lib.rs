//! A RoCEv2 device as a sans-IO state machine: queue pairs, completions, paths and timers.
//!
//! The inputs are packets, the time and the program's calls. The outputs are packets, completions
//! and the next deadline. This crate has no socket, thread, clock or global, and the caller passes
//! a seed for its randomness.
//!
//! | module | subject |
//! |---|---|
//! | [`device`] | the table of all objects |
//! | [`qp`] | queue pairs: transitions, requester, responder, completer |
//! | [`path`] | one peer address: window, round trip, the run being built |
//! | [`cq`] | completions, completion queues and channels, asynchronous events |
//! | [`srq`] | shared receive queues |
//! | `timers` | deadlines |
//!
//! ```
//! use std::net::IpAddr;
//! use std::sync::Mutex;
//! use urxe_device::cq::{Completion, WcStatus};
//! use urxe_device::device::{Device, DeviceConfig, ReceiveScratch};
//! use urxe_device::qp::attr::{QpState, QpType};
//! use urxe_device::qp::work_request::{RecvRequest, SendOp};
//! use urxe_test_support::qp::{attributes, bring_up, init, request};
//! use urxe_types::port::{Datagrams, Run, SendOutcome, Transmit};
//! use urxe_types::time::Time;
//! use urxe_wire::Gid;
//!
//! /// A port that keeps the packets for the caller.
//! #[derive(Default)]
//! struct Port(Mutex<Vec<(u16, Vec<u8>)>>);
//!
//! impl Transmit for Port {
//!     fn transmit(&self, run: &Run<'_>) -> SendOutcome {
//!         let packets = run.segments().map(|packet| (run.from_port, packet.to_vec()));
//!         self.0.lock().unwrap().extend(packets);
//!         SendOutcome::Sent
//!     }
//! }
//!
//! let addresses: [IpAddr; 2] = ["10.0.0.1".parse()?, "10.0.0.2".parse()?];
//! let devices = addresses.map(|ip| Device::new(DeviceConfig::new(vec![Gid::from_ip(ip)], 7)));
//! let (now, port) = (Time::from_ns(0), Port::default());
//!
//! // A queue pair on each device, connected with the other.
//! let mut objects = Vec::new();
//! for device in &devices {
//!     let (pd, cq) = (device.alloc_pd().unwrap(), device.create_cq(4, None, 0)?);
//!     objects.push((device.create_qp(&init(QpType::Rc, pd, &cq))?, cq));
//! }
//! for (here, there) in [(0, 1), (1, 0)] {
//!     let attr = attributes(addresses[there], objects[there].0.qpn());
//!     bring_up(&devices[here], now, (objects[here].0, QpType::Rc), &attr, QpState::Rts)?;
//! }
//!
//! // A SEND of zero bytes, whose receive is also empty.
//! devices[1].post_recv(now, objects[1].0, &[RecvRequest { wr_id: 1, sges: &[] }]).unwrap();
//! devices[0].post_send(now, objects[0].0, &[request(SendOp::Send, &[])]).unwrap();
//!
//! // The SEND goes to the second device, and its acknowledgement to the first.
//! for (from, to) in [(0, 1), (1, 0)] {
//!     devices[from].transmit_pending(now, &port);
//!     for (from_port, bytes) in port.0.lock().unwrap().drain(..) {
//!         let datagrams = Datagrams {
//!             from: addresses[from],
//!             from_port,
//!             to: addresses[to],
//!             bytes: &bytes,
//!             segment_size: bytes.len(),
//!             traffic_class: 0,
//!             hop_limit: 64,
//!         };
//!         devices[to].receive(now, &datagrams, &mut ReceiveScratch::default());
//!     }
//! }
//! for (_, cq) in &objects {
//!     let mut completion = [Completion::default()];
//!     assert_eq!(cq.poll(&mut completion)?, 1);
//!     assert_eq!(completion[0].status, WcStatus::Success);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
// Tests unmap registered memory on purpose.
#![cfg_attr(not(test), forbid(unsafe_code))]

mod ah_table;
pub mod cq;
pub mod device;
pub mod path;
pub mod qp;
mod slot_table;
pub mod srq;
mod timers;
