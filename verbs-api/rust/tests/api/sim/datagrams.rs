//! Datagrams of a simulated network: destinations and multicast groups.

use std::net::IpAddr;

use urxe::sim::{DeviceOptions, Fabric, LinkFaults, Probability};
use urxe::*;

use crate::common::{datagram_qp, says, success};

const QKEY: QKey = QKey(0x77);

struct Member {
    device: Device,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair,
    region: MemoryRegion,
}

impl Member {
    fn new(fabric: &Fabric, addresses: &[IpAddr]) -> Self {
        let device = fabric.device_with(addresses, DeviceOptions::default()).unwrap();
        let pd = device.alloc_pd().unwrap();
        let cq = device.create_cq(256).unwrap();
        let qp = datagram_qp(&pd, &cq, QKEY);
        let region = pd.allocate(4096, Access::LOCAL_WRITE).unwrap();
        Self { device, pd, cq, qp, region }
    }

    fn listen(&self, group: IpAddr) {
        self.qp.attach_mcast(Gid::from_ip(group)).unwrap();
        for _ in 0..100 {
            self.qp.post_recv(&RecvRequest::new(self.region.slice(..).unwrap())).unwrap();
        }
    }

    fn say(&self, group: IpAddr, times: usize) {
        let way = self.pd.address_handle(Gid::from_ip(group)).unwrap();
        for _ in 0..times {
            let request = SendRequest::send(Data::inline(b"hear")).to_group(&way, QKEY).signaled();
            self.qp.post_send(&request).unwrap();
            while self.cq.wait_one(None).unwrap().opcode != WcOpcode::Send {}
        }
    }

    /// Returns the number of received messages.
    fn heard(&self) -> usize {
        let mut completions = [Completion::default(); 128];
        let count = self.cq.poll(&mut completions).unwrap();
        assert!(
            completions[..count].iter().all(|c| c.status == WcStatus::Success && c.byte_len == 44)
        );
        count
    }
}

fn address(host: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, host])
}

#[test]
fn each_member_receives_over_its_own_link_until_it_leaves() {
    let group: IpAddr = "239.9.9.9".parse().unwrap();
    let fabric = Fabric::manual(5);
    let members: Vec<Member> = (1..=4).map(|host| Member::new(&fabric, &[address(host)])).collect();
    let say = |times| {
        let way = members[0].pd.address_handle(Gid::from_ip(group)).unwrap();
        for _ in 0..times {
            let request = SendRequest::send(Data::inline(b"hear")).to_group(&way, QKEY);
            members[0].qp.post_send(&request).unwrap();
            fabric.run_for(std::time::Duration::from_millis(1)).unwrap();
        }
    };
    say(3);
    assert_eq!(fabric.counters().unroutable, 3, "nobody has joined");
    // Member 1 does not join, members 2 and 3 join, and the link to member 3 loses packets.
    members[1].listen(group);
    members[2].listen(group);
    let lossy = LinkFaults { loss: Probability::from_percent(50), ..LinkFaults::default() };
    fabric.set_faults_between(&members[0].device, &members[2].device, lossy).unwrap();
    say(60);
    assert_eq!((members[1].heard(), members[3].heard()), (60, 0));
    let through_losses = members[2].heard();
    assert!((10..50).contains(&through_losses), "{through_losses} of 60 at a loss of 50 %");
    members[1].qp.detach_mcast(Gid::from_ip(group)).unwrap();
    say(10);
    assert_eq!(members[1].heard(), 0);
    assert_eq!(members[1].device.counter(Counter::DropNoGroup), 0, "it does not even arrive");
}

#[test]
fn the_sender_receives_its_own_messages_and_a_dropped_queue_pair_leaves() {
    let group: IpAddr = "ff15::42".parse().unwrap();
    let fabric = Fabric::new(6);
    let both: [IpAddr; 2] = ["fd00::1".parse().unwrap(), address(1)];
    let a = Member::new(&fabric, &both[..1]);
    let b = Member::new(&fabric, &["fd00::2".parse().unwrap()]);
    a.listen(group);
    b.listen(group);
    a.say(group, 1);
    while fabric.run_while(std::time::Duration::from_millis(1), || true).unwrap() {}
    assert_eq!((a.heard(), b.heard()), (1, 1));
    drop(b.qp);
    let sent = fabric.counters().sent;
    a.say(group, 1);
    assert_eq!(fabric.counters().sent, sent + 1, "one copy, to the sender");
}

#[test]
fn a_group_of_another_ip_version_is_refused() {
    let fabric = Fabric::new(7);
    let a = Member::new(&fabric, &[address(1)]);
    let error = a.qp.attach_mcast("ff15::42".parse().unwrap()).unwrap_err();
    assert_eq!(
        (error.errno(), error.to_string().contains("no IPv6 address")),
        (libc::EINVAL, true),
        "{error}"
    );
    let both = Member::new(&fabric, &[address(2), "fd00::2".parse().unwrap()]);
    both.qp.attach_mcast("ff15::42".parse().unwrap()).unwrap();
    both.qp.attach_mcast("239.1.1.1".parse().unwrap()).unwrap();
    says(&both.qp.detach_mcast("239.1.1.2".parse().unwrap()).unwrap_err(), "is not attached to");
}

#[test]
fn queue_pair_one_is_reserved() {
    let device = Fabric::new(42).device([10, 0, 0, 1]).unwrap();
    let (pd, cq) = (device.alloc_pd().unwrap(), device.create_cq(1).unwrap());
    let error = pd.queue_pair(&cq).qp_type(QpType::Gsi).create().unwrap_err();
    assert!(matches!(error, CreateQpError::GsiReserved), "{error}");
    assert_eq!(error.errno(), 1);
    says(&error, "use rdma_cm");
}

/// The first handles of two devices have the same number and denote different peers.
#[test]
fn an_address_handle_of_another_device_is_refused() {
    let fabric = Fabric::new(41);
    let (a, b) = (Member::new(&fabric, &[address(1)]), Member::new(&fabric, &[address(2)]));
    let to_b = a.pd.address_handle(b.qp.endpoint().gid).unwrap();
    let to_a = b.pd.address_handle(a.qp.endpoint().gid).unwrap();
    let by =
        |ah: &AddressHandle| SendRequest::send(Data::EMPTY).to(ah, b.qp.qpn(), QKEY).signaled();
    let error = a.qp.post_send(&by(&to_a)).unwrap_err();
    let [ah, queue] = ["sim1=10.0.0.2", "sim0=10.0.0.1"].map(DeviceName::new);
    let foreign = PostError::AhOfOtherDevice { ah, queue };
    assert_eq!((error, error.errno()), (foreign, 22));
    says(&error, "belongs to device sim1=10.0.0.2, but the queue pair to device sim0=10.0.0.1");
    // All earlier requests were posted, in this or another call of the device.
    for index in [0, 3, 16, 20] {
        let requests: Vec<_> =
            (0..24).map(|nr| by(if nr == index { &to_a } else { &to_b })).collect();
        let refused = a.qp.post_send_batch(&requests).unwrap_err();
        assert_eq!((refused.index, refused.error), (index, foreign));
        for _ in 0..index {
            let _ = success(&a.cq);
        }
        assert_eq!(a.cq.wait_one(None), Err(WaitError::Quiet));
    }
    let other = a.pd.device().alloc_pd().unwrap().address_handle(b.qp.endpoint().gid).unwrap();
    assert_eq!(a.qp.post_send(&by(&other)), Err(PostError::AhOfOtherPd));
}
