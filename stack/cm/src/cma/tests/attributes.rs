//! The attributes with which a program modifies the queue pair of a connection, by its type and
//! state (cm.c, `cm_init_qp_{init,rtr,rts}_attr`, and cma.c, `cma_ib_init_qp_attr`).

use urxe_types::access::Access;
use urxe_types::attr::{QpAttrMask, QpState, QpType};
use urxe_wire::Qpn;
use urxe_wire::mad::PortSpace;

use super::two_hosts::{Host, TwoHosts};
use crate::cma::{CmaError, CmaId, ConnParam, IdState};

const STATES: [QpState; 3] = [QpState::Init, QpState::Rtr, QpState::Rts];

/// Returns the masks of an identifier for [`STATES`], and checks the attributes of all states. The
/// peer's queue pair is `peer`.
fn masks(host: &Host, id: CmaId, peer: u32) -> [QpAttrMask; 3] {
    STATES.map(|state| {
        let (attr, mask) = host.cma.qp_attr(id, state).unwrap();
        assert_eq!((attr.qp_state, attr.port_num), (state, 1));
        if mask.contains(QpAttrMask::DEST_QPN) {
            assert_eq!(attr.dest_qp_num.value(), peer);
            // As in the kernel.
            let ah = attr.ah;
            assert_eq!((ah.hop_limit, ah.port_num, ah.is_global), (64, 1, true));
        }
        mask
    })
}

/// Returns the masks of the active and of the passive side of a connection.
fn of_connection(space: PortSpace, active: QpType, passive: QpType) -> [[QpAttrMask; 3]; 2] {
    let mut hosts = TwoHosts::new();
    let listener = hosts.b.cma.create_id(hosts.b.channel, space, passive, 0).unwrap();
    hosts.b.bind(listener, "0.0.0.0:9").unwrap();
    hosts.b.cma.listen(listener, 0, &hosts.b.system).unwrap();
    let active = hosts.a.cma.create_id(hosts.a.channel, space, active, 0).unwrap();
    hosts.a.resolve_addr(active, "10.0.0.2:9");
    hosts.a.resolve_route(active);
    let [asks, answers] =
        [5, 6].map(|qpn| ConnParam { qpn: Qpn::masked(qpn), ..ConnParam::default() });
    hosts.connect(active, &asks);
    let passive = hosts.request();
    hosts.accept(passive, &answers);
    hosts.a.event().expect("the reply");
    [masks(&hosts.a, active, 6), masks(&hosts.b, passive, 5)]
}

#[test]
fn each_type_of_queue_pair_has_the_attributes_of_a_kernel() {
    const INIT: QpAttrMask =
        QpAttrMask::STATE.union(QpAttrMask::PKEY_INDEX).union(QpAttrMask::PORT);
    let init = INIT | QpAttrMask::ACCESS_FLAGS;
    let rtr = QpAttrMask::STATE
        | QpAttrMask::AV
        | QpAttrMask::PATH_MTU
        | QpAttrMask::DEST_QPN
        | QpAttrMask::RQ_PSN;
    let answers = rtr | QpAttrMask::MAX_DEST_RD_ATOMIC | QpAttrMask::MIN_RNR_TIMER;
    let rts = QpAttrMask::STATE | QpAttrMask::SQ_PSN;
    let asks = rts
        | QpAttrMask::TIMEOUT
        | QpAttrMask::RETRY_CNT
        | QpAttrMask::RNR_RETRY
        | QpAttrMask::MAX_QP_RD_ATOMIC;
    let (rc, uc) = ([init, answers, asks], [init, rtr, rts]);
    assert_eq!(of_connection(PortSpace::TCP, QpType::Rc, QpType::Rc), [rc; 2]);
    assert_eq!(of_connection(PortSpace::TCP, QpType::Uc, QpType::Uc), [uc; 2]);
    assert_eq!(
        of_connection(PortSpace::TCP, QpType::XrcSend, QpType::XrcRecv),
        [[init, rtr, asks], [init, answers, rts | QpAttrMask::TIMEOUT]]
    );
    let ud = [INIT | QpAttrMask::QKEY, QpAttrMask::STATE, rts];
    assert_eq!(of_connection(PortSpace::UDP, QpType::Ud, QpType::Ud), [ud; 2]);
}

#[test]
fn a_side_that_answers_no_reads_permits_only_writes() {
    for (resources, access) in [
        (0, Access::REMOTE_WRITE),
        (1, Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC),
    ] {
        let mut hosts = TwoHosts::new();
        let param = ConnParam { responder_resources: resources, ..ConnParam::default() };
        let (_, active, _) = hosts.asked(&param);
        let (init, _) = hosts.a.cma.qp_attr(active, QpState::Init).unwrap();
        assert_eq!(init.access_flags, access, "{resources}");
    }
}

#[test]
fn only_the_first_state_has_attributes_before_a_connection_begins() {
    let mut hosts = TwoHosts::new();
    let id = hosts.a.resolved(PortSpace::TCP, "10.0.0.2:9");
    let (_, mask) = hosts.a.cma.qp_attr(id, QpState::Init).unwrap();
    assert!(mask.contains(QpAttrMask::ACCESS_FLAGS | QpAttrMask::PORT));
    let absent = CmaError::NoConnection { id, state: IdState::RouteResolved };
    for state in [QpState::Rtr, QpState::Rts] {
        assert_eq!(hosts.a.cma.qp_attr(id, state).err(), Some(absent));
    }
    let other = QpState::Err;
    assert_eq!(hosts.a.cma.qp_attr(id, other).err(), Some(CmaError::QpState(other)));
}
