//! Chooses between several sockets on one address and port.
//!
//! Sockets with SO_REUSEPORT on one address form a group in the order in which they were bound. A
//! classic BPF program reads the UDP payload (the BTH) and returns the index of the receiving
//! socket. The upper bits of a QPN have a process slot. Socket 0 is the common socket of all
//! processes, and socket 1 + slot is that of the slot:
//!
//! | packet | socket |
//! |---|---|
//! | to a QPN above 1 | of the slot in the QPN |
//! | to QP1, a CM message with a communication id of the receiver | of the slot in that id |
//! | to QP1, another response | of the slot in the transaction id |
//! | to QP1, a request (REQ, SIDR_REQ and others); too short | the common socket |
//!
//! For an index beyond the group the kernel chooses a socket by a hash; the process that gets the
//! packet then recognises that it is for another slot. QP0, which RoCE does not use, is treated as
//! QP1. The program decides on a MAD as [`urxe_wire::mad::Destination::of`] does.
//!
//! Sources: IBTA 9.2 (BTH), 13.4.2 (MAD header), 12.6 (CM messages); the kernel's
//! Documentation/networking/filter.rst.

use std::os::fd::AsFd;

use rustix::io::Errno;
use urxe_wire::mad::{self, Attribute};

use super::socket::attach_reuseport_program;

/// Position of the slot in a QPN.
pub use urxe_types::qpn::SLOT_SHIFT as QPN_SLOT_SHIFT;

/// The index of the common socket.
pub const COMMON_SOCKET: u32 = 0;

/// Returns the index of the socket of `slot`.
#[must_use]
pub const fn slot_socket(slot: u8) -> u32 {
    slot as u32 + 1
}

/// Instructions of classic BPF (linux/bpf_common.h).
mod code {
    pub const LOAD_WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    pub const LOAD_HALF: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
    pub const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
    pub const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
    pub const ADD: u32 = libc::BPF_ALU | libc::BPF_ADD | libc::BPF_K;
    pub const SHIFT_RIGHT: u32 = libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K;
    pub const IF_ABOVE: u32 = libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K;
    pub const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    pub const GO_ON: u32 = libc::BPF_JMP | libc::BPF_JA;
    pub const IF_ANY_BIT: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
    pub const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    pub const RETURN_ACCUMULATOR: u32 = libc::BPF_RET | libc::BPF_A;
}

/// Offsets in the UDP payload. The MAD follows the BTH (12 bytes) and the DETH (8).
mod offset {
    /// FECN, BECN and reserved bits in the first byte, then the destination QPN.
    pub const DESTINATION_QPN_WORD: u32 = 4;
    const MAD: u32 = 20;
    pub const CLASS: u32 = MAD + 1;
    pub const METHOD: u32 = MAD + 3;
    pub const TRANSACTION_ID: u32 = MAD + 8;
    pub const ATTRIBUTE: u32 = MAD + 16;
    pub const LOCAL_COMM_ID: u32 = MAD + 24;
    pub const REMOTE_COMM_ID: u32 = MAD + 28;
}

const fn step(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Makes a branch that skips `then` instructions, or `otherwise` instructions.
const fn branch(code: u32, k: u32, then: u8, otherwise: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: then, jf: otherwise, k }
}

/// The steering program. A load beyond the packet's end ends the program with 0, the common socket.
const PROGRAM: [libc::sock_filter; 23] = [
    step(code::LOAD_WORD, offset::DESTINATION_QPN_WORD),
    step(code::AND, 0xff_ffff),
    branch(code::IF_ABOVE, 1, 0, 3),
    step(code::SHIFT_RIGHT, QPN_SLOT_SHIFT),
    step(code::ADD, 1),
    step(code::RETURN_ACCUMULATOR, 0),
    // 6: to QP0 or QP1.
    step(code::LOAD_BYTE, offset::CLASS),
    branch(code::IF_EQUAL, mad::CM_CLASS as u32, 0, 8),
    // 8: a message of the CM.
    step(code::LOAD_HALF, offset::ATTRIBUTE),
    branch(code::IF_EQUAL, Attribute::Req.id() as u32, 12, 0),
    branch(code::IF_EQUAL, Attribute::SidrReq.id() as u32, 11, 0),
    branch(code::IF_EQUAL, Attribute::SidrRep.id() as u32, 0, 2),
    step(code::LOAD_WORD, offset::LOCAL_COMM_ID),
    step(code::GO_ON, 5),
    step(code::LOAD_WORD, offset::REMOTE_COMM_ID),
    step(code::GO_ON, 3),
    // 16: of another class.
    step(code::LOAD_BYTE, offset::METHOD),
    branch(code::IF_ANY_BIT, mad::RESPONSE_BIT as u32, 0, 4),
    step(code::LOAD_WORD, offset::TRANSACTION_ID),
    // 19: an identifier of a process of this address.
    step(code::SHIFT_RIGHT, mad::ID_SLOT_SHIFT),
    step(code::ADD, 1),
    step(code::RETURN_ACCUMULATOR, 0),
    // 22
    step(code::RETURN, COMMON_SOCKET),
];

/// Attaches the program to the group of `socket`.
///
/// # Errors
/// As [`attach_reuseport_program`].
pub fn attach(socket: impl AsFd) -> Result<(), Errno> {
    attach_reuseport_program(socket, &PROGRAM)
}
