//! A queue pair that sends and receives datagrams on a device.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use urxe_stack::cq::{Completion, Cq};
use urxe_stack::device::QpHandle;
use urxe_stack::driver::Engine;
use urxe_stack::memory::{Access, Buffer, Mr, PdId};
use urxe_stack::qp::attr::{AddressVector, QpAttr, QpState, QpType};
use urxe_stack::qp::ud::network_header::NetworkHeader;
use urxe_stack::qp::work_request::{
    Destination, Payload, RecvRequest, SendFlags, SendOp, SendRequest, Sge,
};
use urxe_test_support::host::register;
use urxe_test_support::qp::{address_vector, bring_up_by, datagram_attributes, init, request};
use urxe_wire::{QKey, Qpn};

/// A datagram queue pair with receives of 1 KiB, after the 40 bytes of header of each.
pub struct Endpoint<'e> {
    pub engine: &'e Engine,
    pd: PdId,
    pub cq: Arc<Cq>,
    pub qp: QpHandle,
    buffer: Arc<Buffer>,
    mr: Mr,
}

const QKEY: QKey = QKey(0x1234);
const ROOM: usize = 1024;

impl<'e> Endpoint<'e> {
    pub fn new(engine: &'e Engine) -> Self {
        let device = engine.device();
        let pd = device.alloc_pd().unwrap();
        let cq = device.create_cq(16, None, 0).unwrap();
        let qp = device.create_qp(&init(QpType::Ud, pd, &cq)).unwrap();
        let modify = |attr: &QpAttr, mask| engine.modify_qp(qp, attr, mask);
        bring_up_by(QpType::Ud, &datagram_attributes(QKEY), QpState::Rts, modify).unwrap();
        let buffer = Arc::new(Buffer::new(ROOM).unwrap());
        let mr = register(device, pd, &buffer, Access::LOCAL_WRITE);
        Self { engine, pd, cq, qp, buffer, mr }
    }

    /// Sends to the address of an endpoint, from entry `sgid_index` of the own GID table.
    pub fn send(&self, sgid_index: u8, to: &Endpoint<'_>, address: impl Into<IpAddr>, text: &[u8]) {
        self.send_to(sgid_index, to.qp.qpn(), address, text);
    }

    pub fn send_to(&self, sgid_index: u8, qpn: Qpn, address: impl Into<IpAddr>, text: &[u8]) {
        let attr = AddressVector { sgid_index, ..address_vector(address.into()) };
        let ah = self.engine.device().create_ah(self.pd, &attr).unwrap();
        let request = SendRequest {
            wr_id: 1,
            to: Destination::Datagram { ah, qpn, qkey: QKEY },
            flags: SendFlags::empty(),
            payload: Payload::Inline(&[text]),
            ..request(SendOp::Send, &[])
        };
        self.engine.post_send(self.qp, &[request]).unwrap();
    }

    pub fn post_recv(&self) {
        let sges = [Sge { addr: self.mr.iova, length: ROOM as u32, lkey: self.mr.lkey }];
        self.engine.post_recv(self.qp, &[RecvRequest { wr_id: 2, sges: &sges }]).unwrap();
    }

    /// Waits for a datagram without receiving on this thread. Returns source and destination
    /// address from its header, and its text; `None` if none arrives within `timeout`.
    pub fn receive(&self, timeout: Duration) -> Option<(IpAddr, IpAddr, Vec<u8>)> {
        let end = Instant::now() + timeout;
        let mut out = [Completion::default()];
        while self.cq.poll(&mut out).unwrap() == 0 {
            if Instant::now() > end {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut bytes = vec![0; out[0].byte_len as usize];
        self.buffer.read(0, &mut bytes).unwrap();
        let header = NetworkHeader::parse(&bytes).unwrap();
        Some((header.from, header.to, bytes.split_off(NetworkHeader::LEN)))
    }
}
