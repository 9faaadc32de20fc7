//! Which of several sockets on one address and port a packet goes to.
//!
//! Sockets with SO_REUSEPORT on one address form a group in the order they were bound. A classic BPF program
//! sees the UDP payload (the BTH) and returns the index of the receiving socket. A QPN carries a slot in some of
//! its bits, and the slot is the index. An index beyond the group falls back to the kernel's hash.

use std::os::fd::AsFd;

use rustix::io::Errno;

use super::option::attach_reuseport_program;

/// The bits of the destination QPN that hold the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotBits {
    /// Position of the lowest bit, 0 to 23.
    pub shift: u32,
    /// How many bits, 1 to 24.
    pub count: u32,
}

impl SlotBits {
    /// The slot in `qpn`.
    #[must_use]
    pub const fn slot(self, qpn: u32) -> u32 {
        ((qpn & 0xff_ffff) >> (self.shift & 31)) & self.mask()
    }

    const fn mask(self) -> u32 {
        if self.count >= 24 { 0xff_ffff } else { (1 << self.count) - 1 }
    }

    /// The program: index = slot of the destination QPN.
    fn program(self) -> [libc::sock_filter; 5] {
        /// Instructions of classic BPF (linux/bpf_common.h).
        const LOAD_WORD_ABSOLUTE: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
        const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
        const SHIFT_RIGHT: u32 = libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K;
        const RETURN_ACCUMULATOR: u32 = libc::BPF_RET | libc::BPF_A;
        /// The BTH's second word: FECN, BECN and reserved bits in its first byte, then the destination QPN
        /// (IBTA 9.2).
        const DESTINATION_QPN_WORD: u32 = 4;
        let step = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
        [
            step(LOAD_WORD_ABSOLUTE, DESTINATION_QPN_WORD),
            step(AND, 0xff_ffff),
            step(SHIFT_RIGHT, self.shift & 31),
            step(AND, self.mask()),
            step(RETURN_ACCUMULATOR, 0),
        ]
    }

    /// Steers the group that `socket` is a member of.
    ///
    /// # Errors
    /// What [`attach_reuseport_program`] answers.
    pub fn attach(self, socket: impl AsFd) -> Result<(), Errno> {
        attach_reuseport_program(socket, &self.program())
    }
}
