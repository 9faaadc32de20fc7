//! Two hosts on a wire in memory, for the benches. Each packet that one host sends is given to the
//! other; nothing else happens.
#![allow(dead_code, reason = "each bench uses a part")]

use std::net::Ipv4Addr;

use urxe_stack::cq::Completion;
use urxe_stack::device::{DeviceConfig, QpHandle, ReceiveScratch};
use urxe_stack::qp::QpInit;
use urxe_stack::qp::attr::{PathMtu, QpAttr, QpCap, QpState, QpType};
use urxe_stack::qp::work_request::{Remote, SendOp};
use urxe_test_support::host::{A, B, Host, HostOptions};
use urxe_test_support::qp::attributes;
use urxe_test_support::wire::Wire;
use urxe_wire::Gid;

const BUFFER_LEN: usize = 1 << 20;
const CAP: QpCap = QpCap {
    max_send_wr: 64,
    max_recv_wr: 64,
    max_send_sge: 1,
    max_recv_sge: 1,
    max_inline_data: 64,
};

/// A requester (the first host) and a responder.
pub struct Pair {
    hosts: [Host; 2],
    wire: Wire,
    scratches: [ReceiveScratch; 2],
}

impl Pair {
    pub fn new() -> Self {
        Self::with_buffers(BUFFER_LEN)
    }

    /// Makes a pair with `memory` bytes on each side.
    pub fn with_buffers(memory: usize) -> Self {
        let options = HostOptions { cap: CAP, cq_entries: 1024, memory, ..HostOptions::default() };
        let host = |address: Ipv4Addr, seed| {
            let config = DeviceConfig::new(vec![Gid::from_ip(address.into())], seed);
            Host::with(address.into(), config, options)
        };
        let (wire, scratches) = Default::default();
        let pair = Self { hosts: [host(A, 0), host(B, 1)], wire, scratches };
        pair.connect([pair.hosts[0].qp, pair.hosts[1].qp]);
        pair
    }

    fn connect(&self, qps: [QpHandle; 2]) {
        for (nr, peer) in [(0, B), (1, A)] {
            let attr = QpAttr {
                path_mtu: PathMtu::Mtu4096,
                max_rd_atomic: 16,
                max_dest_rd_atomic: 16,
                ..attributes(peer.into(), qps[1 - nr].qpn())
            };
            self.hosts[nr].bring_up((qps[nr], QpType::Rc), &attr, QpState::Rts);
        }
    }

    /// Creates one more queue pair on each side and connects them. Their queues have `entries`
    /// entries.
    pub fn connect_another(&mut self, entries: u32) -> [QpHandle; 2] {
        let cap = QpCap { max_send_wr: entries, max_recv_wr: entries, max_inline_data: 0, ..CAP };
        let qps = [0, 1].map(|nr| {
            let host = &self.hosts[nr];
            host.create(&QpInit { cap, ..host.init() })
        });
        self.connect(qps);
        qps
    }

    /// Posts a WRITE of `length` bytes at `offset` of both buffers.
    pub fn post_write(&self, qp: QpHandle, offset: u64, length: u32) {
        let [requester, responder] = &self.hosts;
        let op = SendOp::Write { remote: responder.remote(offset) };
        requester.post_on(qp, op, &[requester.sge(offset, length)]);
    }

    /// Sends and receives a SEND of `length` bytes.
    pub fn send(&mut self, length: u32) {
        let responder = &self.hosts[1];
        responder.post_recv(1, &[responder.sge(0, length)]);
        self.post(SendOp::Send, length);
        self.finish(1, 1);
    }

    /// Does a WRITE of `length` bytes.
    pub fn write(&mut self, length: u32) {
        self.post(SendOp::Write { remote: self.remote() }, length);
        self.finish(1, 0);
    }

    /// Does a READ of `length` bytes.
    pub fn read(&mut self, length: u32) {
        self.post(SendOp::Read { remote: self.remote() }, length);
        self.finish(1, 0);
    }

    fn remote(&self) -> Remote {
        self.hosts[1].remote(0)
    }

    fn post(&self, op: SendOp, length: u32) {
        self.hosts[0].post(op, &[self.hosts[0].sge(0, length)]);
    }

    /// Moves packets until neither host sends. Checks the numbers of completions. The time that
    /// passes suffices for 64 KiB at the rate of READ responses.
    pub fn finish(&mut self, sends: usize, receives: usize) {
        self.hosts.iter().for_each(|host| host.clock.advance(10_000));
        while self.step(0, 1) | self.step(1, 0) {}
        for (host, want) in self.hosts.iter().zip([sends, receives]) {
            let mut out = [Completion::default(); 64];
            let count = host.cq.poll(&mut out).expect("it did not overrun");
            assert_eq!(count, want, "completions");
            assert!(out[..count].iter().all(|c| c.status.is_success()));
        }
    }

    /// Gives the packets of `from` to `to`. Returns whether there were any. Each host caches its
    /// peer's ICRC seeds, as the threads of two programs do.
    fn step(&mut self, from: usize, to: usize) -> bool {
        self.hosts[from].transmit(&self.wire);
        let host = &self.hosts[to];
        let mut moved = false;
        while let Some(run) = self.wire.pop() {
            host.device.receive(host.clock.now(), &run.datagrams(), &mut self.scratches[to]);
            self.wire.recycle(run);
            moved = true;
        }
        moved
    }
}
