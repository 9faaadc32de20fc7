//! Creation, transitions and destruction of queue pairs.

use urxe_stack::device::DestroyQpError;
use urxe_stack::memory::Access;
use urxe_stack::qp::attr::{QpAttr, QpAttrMask, QpState, QpType};
use urxe_stack::qp::transition;
use urxe_test_support::qp::address_vector;
use urxe_wire::Gid;

use super::memory::REMOTE;
use super::{PEERS, Scenario};
use crate::device::services::GROUPS;

impl Scenario {
    pub(super) fn create(&mut self, nr: usize) {
        let kind = self.qps[nr].kind;
        let handle =
            self.shared().create(&self.device, kind, self.pds[0], &self.cq, self.sq_sig_all);
        let qp = &mut self.qps[nr];
        qp.qpn = handle.qpn();
        qp.handle = Some(handle);
        qp.posted.reset();
    }

    pub(super) fn destroy(&mut self, nr: usize) {
        self.transmit();
        self.poll();
        while let Some(event) = self.device.events().next_event() {
            self.device.events().ack(&event);
        }
        if let Some(handle) = self.qps[nr].handle {
            for group in 0..GROUPS.len() {
                if self.qps[nr].groups[group] {
                    let refused = self.device.destroy_qp(self.now, handle);
                    assert!(matches!(refused, Err(DestroyQpError::Attached { .. })), "{refused:?}");
                    self.toggle_membership(nr, group);
                }
            }
        }
        if let Some(handle) = self.qps[nr].handle.take() {
            self.device.destroy_qp(self.now, handle).expect("it exists");
            assert!(self.device.query_qp(handle).is_none());
        }
    }

    pub(super) fn state(&self, nr: usize) -> Option<QpState> {
        Some(self.device.query_qp(self.qps[nr].handle?)?.qp_state)
    }

    fn change(&mut self, nr: usize, attr: &QpAttr, bits: QpAttrMask) -> bool {
        let Some(handle) = self.qps[nr].handle else { return false };
        self.device.modify_qp(self.now, handle, attr, bits).is_ok()
    }

    pub(super) fn go(&mut self, nr: usize, state: QpState, bits: QpAttrMask) -> bool {
        let qp = &self.qps[nr];
        let ah = address_vector(qp.peer);
        let attr = QpAttr { qp_state: state, dest_qp_num: qp.dest_qpn, ah, ..self.attr };
        let was = self.state(nr);
        // The attributes that the service supports, and those that it requires.
        let known = was.and_then(|was| transition::attributes(was, state, qp.kind.qp_type));
        let bits = match known {
            Some(known) if qp.kind.qp_type != QpType::Rc => {
                bits.intersection(known.allowed()) | known.required
            }
            _ => bits,
        };
        let changed = self.change(nr, &attr, bits | QpAttrMask::STATE);
        if changed && was == Some(QpState::Sqe) && state == QpState::Rts {
            self.qps[nr].posted.sending_recovered();
        }
        changed
    }

    /// Brings a queue pair from RESET through the states.
    pub(super) fn bring_to(&mut self, nr: usize, state: QpState) {
        let qp_type = self.qps[nr].kind.qp_type;
        let states = [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts];
        for (from, step) in states.into_iter().zip(states.into_iter().skip(1)) {
            let known = transition::attributes(from, step, qp_type);
            let bits = known.map_or(QpAttrMask::empty(), |known| known.required);
            if self.go(nr, step, bits) {
                let qp = &mut self.qps[nr];
                match step {
                    QpState::Rtr => qp.expected = self.attr.rq_psn,
                    QpState::Rts => qp.last_sent = self.attr.sq_psn,
                    _ => {}
                }
            }
            if state == step {
                return;
            }
        }
        self.go(nr, state, QpAttrMask::empty());
    }

    /// Attaches a queue pair to a group, or detaches it. A datagram queue pair always can, others
    /// never.
    fn toggle_membership(&mut self, nr: usize, group: usize) {
        let qp = &mut self.qps[nr];
        let Some(handle) = qp.handle else { return };
        let mgid = Gid::from_ip(GROUPS[group]);
        if qp.groups[group] {
            self.device.detach_mcast(handle, mgid).expect("it is attached");
            assert!(self.device.detach_mcast(handle, mgid).is_err(), "detached twice");
            qp.groups[group] = false;
        } else {
            let attached = self.device.attach_mcast(handle, mgid);
            assert_eq!(attached.is_ok(), qp.kind.qp_type == QpType::Ud, "{attached:?}");
            qp.groups[group] = attached.is_ok();
        }
        let mut listed = self.device.mcast_groups();
        listed.sort();
        let count = |group: usize| self.qps.iter().filter(|qp| qp.groups[group]).count();
        let mut expected: Vec<_> = (0..GROUPS.len()).map(|nr| (GROUPS[nr], count(nr))).collect();
        expected.retain(|(_, count)| *count > 0);
        expected.sort();
        assert_eq!(listed, expected);
    }

    pub(super) fn modify(&mut self, nr: usize, how: u8, value: u8) {
        use QpAttrMask as M;
        match how % 12 {
            _ if how >= 224 => self.toggle_membership(nr, usize::from(value) % GROUPS.len()),
            0 => drop(self.go(nr, QpState::Sqd, M::empty())),
            1 => drop(self.go(nr, QpState::Rts, M::empty())),
            2 => drop(self.go(nr, QpState::Err, M::empty())),
            3 => {
                // Earlier completions stay in the completion queue.
                self.transmit();
                self.poll();
                if self.go(nr, QpState::Reset, M::empty()) {
                    self.qps[nr].posted.reset();
                }
            }
            4 => {
                if self.state(nr) == Some(QpState::Reset) {
                    self.qps[nr].peer = PEERS[usize::from(value) % 2].into();
                }
                self.bring_to(nr, QpState::Rts);
            }
            5 => {
                // Another path, as far as the path can be changed.
                let old = self.qps[nr].peer;
                self.qps[nr].peer = PEERS[usize::from(value) % 2].into();
                if !self.go(nr, QpState::Sqd, M::AV) {
                    self.qps[nr].peer = old;
                }
            }
            6 => {
                let attr = QpAttr { timeout: value % 32, retry_cnt: value >> 5, ..self.attr };
                self.change(nr, &attr, M::TIMEOUT | M::RETRY_CNT);
            }
            7 => {
                let attr = QpAttr {
                    max_rd_atomic: value % 9,
                    max_dest_rd_atomic: value >> 4,
                    ..self.attr
                };
                self.change(nr, &attr, M::MAX_QP_RD_ATOMIC | M::MAX_DEST_RD_ATOMIC);
            }
            8 => {
                let access = Access::from_bits_truncate(u32::from(value)) & REMOTE;
                self.change(nr, &QpAttr { access_flags: access, ..self.attr }, M::ACCESS_FLAGS);
            }
            9 => {
                let attr =
                    QpAttr { qp_state: QpState::Sqd, en_sqd_async_notify: true, ..self.attr };
                self.change(nr, &attr, M::STATE | M::EN_SQD_ASYNC_NOTIFY);
            }
            10 => drop(self.go(
                nr,
                QpState::ALL[usize::from(value) % 7],
                M::from_bits_truncate(u32::from(value) << 3),
            )),
            _ => drop(self.go(nr, QpState::Init, M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS)),
        }
        self.poll();
        if self.state(nr) == Some(QpState::Err) && !self.cq_lost {
            self.qps[nr].posted.must_be_flushed();
        }
    }
}
