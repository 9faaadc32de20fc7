//! The services of a plan's queue pairs.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use urxe_stack::cq::Cq;
use urxe_stack::device::{Device, QpHandle};
use urxe_stack::memory::PdId;
use urxe_stack::qp::QpInit;
use urxe_stack::qp::attr::{QpCap, QpType};
use urxe_stack::qp::work_request::{AhHandle, Destination};
use urxe_stack::srq::xrcd::{Xrcd, XrcdFlags};
use urxe_stack::srq::{Srq, SrqAttr, SrqInit, XrcSrqInit};
use urxe_test_support::qp::{self, CAP, address_vector};
use urxe_wire::{QKey, Qpn};

/// The Q_Key of every datagram queue pair.
pub const QKEY: QKey = QKey(0x0bad_cafe);

/// Multicast groups for datagram queue pairs.
pub const GROUPS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(239, 1, 2, 3)), IpAddr::V4(Ipv4Addr::new(224, 9, 8, 7))];

/// A queue pair's service, and whether its receives are in the shared queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    pub qp_type: QpType,
    pub is_shared: bool,
}

const fn own(qp_type: QpType) -> Kind {
    Kind { qp_type, is_shared: false }
}

const fn shared(qp_type: QpType) -> Kind {
    Kind { qp_type, is_shared: true }
}

/// The ends of XRC: the target uses the domain's queue.
const XRC: [Kind; 2] = [own(QpType::XrcSend), shared(QpType::XrcRecv)];
const RC: Kind = own(QpType::Rc);

/// Returns the three queue pairs of a plan: mostly reliable connections.
pub fn kinds(choice: u8) -> [Kind; 3] {
    match choice % 32 {
        20 => [own(QpType::Uc), RC, RC],
        21 => [own(QpType::Uc); 3],
        22 => [own(QpType::Ud), RC, own(QpType::Uc)],
        23 => [own(QpType::Ud), own(QpType::Ud), shared(QpType::Ud)],
        24 => [XRC[0], XRC[1], RC],
        25 => [XRC[1], XRC[1], XRC[0]],
        26 => [XRC[1], own(QpType::Uc), shared(QpType::Ud)],
        27 => [shared(QpType::Rc), shared(QpType::Rc), RC],
        28 => [shared(QpType::Rc), shared(QpType::Ud), shared(QpType::Uc)],
        29 => [shared(QpType::Rc); 3],
        30 => [shared(QpType::Uc), own(QpType::Ud), XRC[0]],
        _ => [RC; 3],
    }
}

/// The objects that the queue pairs share.
pub struct Shared {
    xrcd: Arc<Xrcd>,
    /// The queue of connections and datagrams, and the queue of XRC.
    pub srqs: [Arc<Srq>; 2],
    ahs: Vec<AhHandle>,
}

impl Shared {
    pub fn new(device: &Device, pd: PdId, cq: &Arc<Cq>, peers: &[IpAddr]) -> Self {
        let xrcd = device.open_xrcd(None, XrcdFlags::CREATE, |_| Ok(None)).expect("there are many");
        let xrc = XrcSrqInit { xrcd: Arc::clone(&xrcd), cq: Arc::clone(cq) };
        let srqs = [None, Some(xrc)].map(|xrc| {
            let attr = SrqAttr { max_wr: 9, max_sge: 2, srq_limit: 0 };
            device.create_srq(&SrqInit { pd, attr, xrc, context: 0 }).expect("there are many")
        });
        let ahs = peers
            .iter()
            .chain(&GROUPS)
            .map(|peer| device.create_ah(pd, &address_vector(*peer)).expect("a good address"))
            .collect();
        Self { xrcd, srqs, ahs }
    }

    /// Returns the shared receive queue of a queue pair of this kind.
    pub fn srq(&self, kind: Kind) -> Option<&Arc<Srq>> {
        kind.is_shared.then(|| &self.srqs[usize::from(kind.qp_type == QpType::XrcRecv)])
    }

    pub fn create(
        &self,
        device: &Device,
        kind: Kind,
        pd: PdId,
        cq: &Arc<Cq>,
        sq_sig_all: bool,
    ) -> QpHandle {
        if kind.qp_type == QpType::XrcRecv {
            return device.create_xrc_target(&self.xrcd).expect("there are many");
        }
        let sizes = QpCap { max_send_wr: 24, max_recv_wr: 9, ..CAP };
        let cap = QpCap { max_send_sge: 2, max_recv_sge: 2, ..sizes };
        let srq = self.srq(kind).cloned();
        let init = QpInit { srq, cap, sq_sig_all, ..qp::init(kind.qp_type, pd, cq) };
        device.create_qp(&init).expect("there are many")
    }

    /// Returns the destination of a message; `which` selects among the possible ones.
    pub fn destination(&self, qp_type: QpType, peer: Qpn, which: u8) -> Destination {
        match qp_type {
            QpType::Ud => {
                let nr = usize::from(which >> 4) % self.ahs.len();
                let qkey = if which & 0x30 == 0x30 { QKey(0x8000_0000) } else { QKEY };
                // One in eight has the wrong queue pair number for its address.
                let is_group = nr >= self.ahs.len() - GROUPS.len();
                let qpn = if is_group == (which & 7 != 7) { Qpn::MULTICAST } else { peer };
                Destination::Datagram { ah: self.ahs[nr], qpn, qkey }
            }
            QpType::XrcSend => Destination::XrcSrq { srq: self.srqs[usize::from(which & 1)].id() },
            _ => Destination::Peer,
        }
    }

    /// Removes all objects after the queue pairs were destroyed.
    pub fn end(self, device: &Device) {
        let Self { xrcd, srqs, ahs } = self;
        ahs.iter().for_each(|ah| device.destroy_ah(*ah).expect("it exists"));
        srqs.iter().for_each(|srq| device.destroy_srq(srq).expect("no queue pair uses the queue"));
        drop(srqs);
        device.close_xrcd(&xrcd).expect("nothing is in it");
    }
}
