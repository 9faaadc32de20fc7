//! Work requests of the program.

use urxe_stack::memory::Bind;
use urxe_stack::qp::work_request::{
    Destination, Payload, RecvRequest, Remote, SendFlags, SendOp, SendRequest,
};
use urxe_wire::Rkey;

use super::Scenario;
use super::memory::{FAST, REGIONS, WINDOW};
use crate::device::plan::{Place, Send};

impl Scenario {
    pub(super) fn post_send(&mut self, qp: u8, sends: &[Send]) {
        let nr = usize::from(qp) % self.qps.len();
        let Some(handle) = self.qps[nr].handle else { return };
        for send in sends.iter().take(20) {
            let (addr, _, key) =
                self.remote(Place { region: send.operand % 8, offset: send.remote, length: 0 });
            let remote = Remote { addr, rkey: Rkey(key) };
            let operand = u64::from(send.operand);
            let op = match send.op % 8 {
                _ if send.op >= 232 => self.local_op(send, Rkey(key)),
                0 => SendOp::Send,
                1 => SendOp::SendImm { imm: send.operand.into() },
                2 => SendOp::SendInvalidate { rkey: Rkey(key) },
                3 => SendOp::Write { remote },
                4 => SendOp::WriteImm { remote, imm: 9 },
                5 => SendOp::Read { remote },
                6 => SendOp::CompareSwap { remote, compare: operand, swap: 1 },
                _ => SendOp::FetchAdd { remote, add: operand },
            };
            let mut sges = vec![self.sge(send.local)];
            sges.extend(send.second.map(|place| self.sge(place)));
            if op.is_atomic() && send.local.length & 15 != 3 {
                sges.truncate(1);
                sges[0].length = 8;
            }
            let flags = SendFlags::from_bits_truncate(u32::from(send.flags & 7));
            let inline = [send.flags; 100];
            let pieces: [&[u8]; 1] = [&inline[..usize::from(send.operand) % 100]];
            if op.is_local() && send.flags & 0x40 == 0 {
                sges.clear();
            }
            let payload = if send.flags & 0xc8 == 0xc8 {
                Payload::Inline(&pieces)
            } else {
                Payload::Sges(&sges)
            };
            let wr_id = self.next_wr;
            self.next_wr += 1;
            let to = self.destination(nr, send.flags);
            let request = SendRequest { wr_id, op, to, flags, payload };
            if self.device.post_send(self.now, handle, &[request]).is_ok() {
                let signalled = self.sq_sig_all || flags.contains(SendFlags::SIGNALED);
                self.qps[nr].posted.send(wr_id, signalled);
            }
        }
    }

    fn destination(&self, nr: usize, which: u8) -> Destination {
        let qp = &self.qps[nr];
        self.shared().destination(qp.kind.qp_type, qp.dest_qpn, which)
    }

    /// Returns a local work request on the special regions or on the object with `key`.
    fn local_op(&mut self, send: &Send, key: Rkey) -> SendOp {
        let next = |key: u32| key & !0xff | u32::from(send.operand);
        match send.op % 3 {
            0 => SendOp::LocalInv { rkey: key },
            1 => {
                self.keys[FAST] = next(self.keys[FAST]);
                SendOp::RegMr { key: Rkey(self.keys[FAST]), access: REGIONS[FAST].1 }
            }
            _ => {
                let bind = self.bind(Rkey(next(self.keys[WINDOW])));
                self.keys[WINDOW] = bind.new_rkey.value();
                SendOp::BindMw(Bind { length: bind.length - u64::from(send.operand), ..bind })
            }
        }
    }

    pub(super) fn post_recv(&mut self, qp: u8, count: u8, place: Place, second: Option<Place>) {
        let nr = usize::from(qp) % self.qps.len();
        let Some(handle) = self.qps[nr].handle else { return };
        let mut sges = vec![self.sge(place)];
        sges.extend(second.map(|place| self.sge(place)));
        for _ in 0..count % 8 + 1 {
            let wr_id = self.next_wr;
            self.next_wr += 1;
            let request = RecvRequest { wr_id, sges: &sges };
            if let Some(srq) = self.shared().srq(self.qps[nr].kind) {
                if srq.post(&[request]).is_ok() {
                    self.in_shared.insert(wr_id);
                }
            } else if self.device.post_recv(self.now, handle, &[request]).is_ok() {
                self.qps[nr].posted.recv(wr_id);
            }
        }
    }
}
