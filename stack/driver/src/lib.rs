//! The stack of a software RoCEv2 device, and the driver that runs the device over UDP.
//!
//! [`driver`] owns the threads and descriptors. Everything else is re-exported from the layer that
//! defines it:
//!
//! | crate | modules here |
//! |---|---|
//! | `urxe-types` | [`time`], [`rng`], [`sync`], [`errors!`], [`listing`], basic types, others |
//! | `urxe-memory` | [`memory`] |
//! | `urxe-device` | [`cq`], [`device`], [`path`], [`qp`], [`srq`] |
//! | `urxe-cm`, by the feature `cm` | `cm`, `cma` |
//! | `urxe-sim`, by the feature `sim` | `port::sim`, `port::faults` |
//! | `urxe-io` | [`files`], [`link`], [`rendezvous`], [`sys`]; three modules of [`port`] |
//!
//! The protocol core (memory, device, cm) is sans-IO. Packets, time and the program's calls go in;
//! packets, completions and the next deadline come out. The core has no socket, no thread, no clock
//! and no global, and its caller passes in the randomness. The same core runs over UDP, in a seeded
//! network with virtual time, and under a fuzzer.
//!
//! # The two ways of a payload
//!
//! From `post_send` to the socket:
//!
//! 1. [`Engine::post_send`](driver::Engine::post_send) takes the work request and then transmits,
//!    unless the send coalescer delays the request.
//! 2. [`Device::post_send`](device::Device::post_send) checks the request and lists the queue pair
//!    on its path.
//! 3. [`Device::transmit_pending`](device::Device::transmit_pending) becomes the sender of the
//!    path. The scheduler chooses queue pairs, and each copies payload into the run.
//! 4. [`Transmit::transmit`](port::Transmit::transmit) of [`UdpPort`](port::udp::UdpPort) sends the
//!    run by one `sendmsg` with GSO.
//!
//! From the socket to `ibv_poll_cq`:
//!
//! 1. [`Engine::poll`](driver::Engine::poll) finds the completion queue empty and receives.
//! 2. [`UdpPort::receive`](port::udp::UdpPort::receive) reads datagrams by one `recvmmsg` with GRO.
//! 3. [`Device::receive`](device::Device::receive) checks the ICRC and locks the queue pair. The
//!    responder checks keys and copies payload into the region.
//! 4. [`Cq::poll`](cq::Cq::poll) returns the completion.
//!
//! # Example
//!
//! A SEND over UDP from one address of the loopback interface to another:
//!
//! ```
//! use urxe_stack::cq::{Completion, WcStatus};
//! use urxe_stack::driver::{Engine, EngineConfig};
//! use urxe_stack::qp::attr::{QpAttr, QpState, QpType};
//! use urxe_stack::qp::work_request::{RecvRequest, SendOp};
//! use urxe_test_support::qp::{attributes, bring_up_by, init, request};
//!
//! let mut ends = Vec::new();
//! for address in ["127.77.1.1", "127.77.1.2"] {
//!     let engine = Engine::open(&format!("rxe0={address}").parse()?, EngineConfig::default())?;
//!     let pd = engine.device().alloc_pd().unwrap();
//!     let cq = engine.device().create_cq(4, None, 0)?;
//!     let qp = engine.device().create_qp(&init(QpType::Rc, pd, &cq))?;
//!     ends.push((engine, qp, cq, address.parse()?));
//! }
//! for (here, there) in [(0, 1), (1, 0)] {
//!     let (engine, qp, ..) = &ends[here];
//!     let attr = attributes(ends[there].3, ends[there].1.qpn());
//!     let modify = |attr: &QpAttr, mask| engine.modify_qp(*qp, attr, mask);
//!     bring_up_by(QpType::Rc, &attr, QpState::Rts, modify)?;
//! }
//!
//! ends[1].0.post_recv(ends[1].1, &[RecvRequest { wr_id: 1, sges: &[] }]).unwrap();
//! ends[0].0.post_send(ends[0].1, &[request(SendOp::Send, &[])]).unwrap();
//! for (engine, _, cq, _) in &ends {
//!     let mut completion = [Completion::default()];
//!     while engine.poll(cq, &mut completion)? == 0 {}
//!     assert_eq!(completion[0].status, WcStatus::Success);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]

pub mod driver;

#[cfg(feature = "cm")]
pub use urxe_cm::{cm, cma};
pub use urxe_device::{cq, device, path, qp, srq};
pub use urxe_io::{files, link, rendezvous, ring, sys};
pub use urxe_memory as memory;
pub use urxe_types::{allocate, errno, errors, escape, listing, names, rng, sync, time};

/// The ports, and the traits that a port implements.
pub mod port {
    #[cfg(feature = "capture")]
    pub use urxe_io::tap;
    pub use urxe_io::{sharing, udp};
    #[cfg(feature = "sim")]
    pub use urxe_sim::{self as sim, impairment as faults};
    pub use urxe_types::port::*;
}
