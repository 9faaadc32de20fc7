//! Whom a datagram may be for.

use urxe::sim::Fabric;
use urxe::*;

use crate::common::{datagram_qp, says, success};

const QKEY: QKey = QKey(0x77);

struct End {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair,
}

fn end(fabric: &Fabric, host: u8) -> End {
    let device = fabric.device([10, 0, 0, host]).unwrap();
    let (pd, cq) = (device.alloc_pd().unwrap(), device.create_cq(64).unwrap());
    let qp = datagram_qp(&pd, &cq, QKEY);
    End { pd, cq, qp }
}

#[test]
fn queue_pair_one_is_no_programs() {
    let device = Fabric::new(42).device([10, 0, 0, 1]).unwrap();
    let (pd, cq) = (device.alloc_pd().unwrap(), device.create_cq(1).unwrap());
    let error = pd.queue_pair(&cq).qp_type(QpType::Gsi).create().unwrap_err();
    assert!(matches!(error, CreateQpError::GsiReserved), "{error}");
    assert_eq!(error.errno(), 1);
    says(&error, "use rdma_cm");
}

/// The first handles of two devices have the same name there, and mean different peers.
#[test]
fn an_address_handle_of_another_device_sends_to_nobody() {
    let fabric = Fabric::new(41);
    let (a, b) = (end(&fabric, 1), end(&fabric, 2));
    let to_b = a.pd.address_handle(b.qp.endpoint().gid).unwrap();
    let to_a = b.pd.address_handle(a.qp.endpoint().gid).unwrap();
    let by =
        |ah: &AddressHandle| SendRequest::send(Data::EMPTY).to(ah, b.qp.qpn(), QKEY).signaled();
    let error = a.qp.post_send(&by(&to_a)).unwrap_err();
    assert_eq!((error, error.errno()), (PostError::AhOfOtherDevice, 22));
    says(&error, "belongs to another device");
    // Those before it were posted, in whichever call to the device they were.
    for index in [0, 3, 16, 20] {
        let requests: Vec<_> =
            (0..24).map(|nr| by(if nr == index { &to_a } else { &to_b })).collect();
        let refused = a.qp.post_send_batch(&requests).unwrap_err();
        assert_eq!((refused.index, refused.error), (index, PostError::AhOfOtherDevice));
        for _ in 0..index {
            success(&a.cq);
        }
        assert_eq!(a.cq.wait_one(None), Err(WaitError::Quiet));
    }
    let other = a.pd.device().alloc_pd().unwrap().address_handle(b.qp.endpoint().gid).unwrap();
    assert_eq!(a.qp.post_send(&by(&other)), Err(PostError::AhOfOtherPd));
}
