//! A queue that is armed for solicited completions ignores other messages, for every transport
//! service.

use std::time::Duration;

use urxe::sim::Fabric;
use urxe::*;

const QKEY: QKey = QKey(5);

/// A sender with its destination, the completion queue of the receiver, and the objects of the
/// receiver.
struct Service {
    name: &'static str,
    sender: QueuePair,
    ah: Option<(AddressHandle, Qpn)>,
    srq: Option<SharedReceiveQueue>,
    receiver: Option<QueuePair>,
    _target: Option<XrcTarget>,
    channel: CompletionChannel,
    cq: CompletionQueue,
}

impl Service {
    /// Creates both ends in a fabric of their own.
    fn new(name: &'static str, qp_type: QpType) -> (Fabric, Self) {
        let fabric = Fabric::new(41);
        let (a, b) = (fabric.device([10, 0, 0, 1]).unwrap(), fabric.device([10, 0, 0, 2]).unwrap());
        let (a_pd, b_pd) = (a.alloc_pd().unwrap(), b.alloc_pd().unwrap());
        let channel = b.create_channel().unwrap();
        let cq = channel.create_cq(16).unwrap();
        let sender = a_pd.queue_pair(&a.create_cq(16).unwrap()).qp_type(qp_type).create().unwrap();
        let options = ConnectOptions::default();
        let (mut ah, mut srq, mut receiver, mut target) = (None, None, None, None);
        if qp_type == QpType::XrcSend {
            let domain = b.new_xrc_domain().unwrap();
            srq = Some(b_pd.shared_receive_queue(16).xrc(&domain, &cq).create().unwrap());
            let end = domain.target().unwrap();
            end.connect(&sender.endpoint(), &options).unwrap();
            sender.connect(&end.endpoint(), &options).unwrap();
            target = Some(end);
        } else {
            let end = b_pd.queue_pair(&cq).qp_type(qp_type).create().unwrap();
            if qp_type == QpType::Ud {
                [&sender, &end].into_iter().for_each(|qp| qp.start_datagrams(QKEY).unwrap());
                ah = Some((a_pd.address_handle(end.endpoint().gid).unwrap(), end.qpn()));
            } else {
                end.connect(&sender.endpoint(), &options).unwrap();
                sender.connect(&end.endpoint(), &options).unwrap();
            }
            receiver = Some(end);
        }
        (fabric, Self { name, sender, ah, srq, receiver, _target: target, channel, cq })
    }

    fn post_recv(&self, room: RegionSlice<'_>) {
        let request = RecvRequest::new(room);
        match (&self.srq, &self.receiver) {
            (Some(srq), _) => srq.post_recv(&request).unwrap(),
            (None, Some(receiver)) => receiver.post_recv(&request).unwrap(),
            (None, None) => unreachable!("something receives"),
        }
    }

    fn send(&self, is_solicited: bool) {
        let mut request = SendRequest::send(Data::inline(b"message"));
        if let Some((ah, qpn)) = &self.ah {
            request = request.to(ah, *qpn, QKEY);
        }
        if let Some(srq) = &self.srq {
            request = request.to_srq(srq.id());
        }
        self.sender.post_send(&if is_solicited { request.solicited() } else { request }).unwrap();
    }
}

#[test]
fn only_a_solicited_message_wakes_on_every_service() {
    for (name, qp_type) in
        [("RC", QpType::Rc), ("UC", QpType::Uc), ("UD", QpType::Ud), ("XRC", QpType::XrcSend)]
    {
        let (_fabric, service) = Service::new(name, qp_type);
        let pd = match (&service.srq, &service.receiver) {
            (Some(srq), _) => srq.pd(),
            (_, receiver) => receiver.as_ref().unwrap().pd(),
        };
        let inbox = pd.allocate(256, Access::LOCAL_WRITE).unwrap();
        for (is_solicited, due) in [(false, false), (true, true), (false, false)] {
            service.post_recv(inbox.slice(..).unwrap());
            assert!(!service.cq.arm(ArmKind::Solicited));
            service.send(is_solicited);
            let woken = service.channel.wait(Some(Duration::from_millis(50)));
            assert_eq!(woken.is_ok(), due, "{}", service.name);
            let taken = service.cq.poll_one().unwrap().expect("it has come in any case");
            assert_eq!(
                (taken.status, taken.opcode),
                (WcStatus::Success, WcOpcode::Recv),
                "{}",
                service.name
            );
        }
    }
}
