//! Replies that bring the acknowledgement of the request along: it is the short last packet of
//! their run, and told first. Where nothing can follow the reply in its run, the acknowledgement
//! goes before it.

use super::*;

/// `a` asks, and `b` replies before it acknowledges.
fn ask(reply: SendOp, reply_len: u32) -> (End, End, Wire) {
    let (a, b, wire) = pair();
    for end in [&a, &b] {
        let request = RecvRequest { wr_id: 9, sges: &[end.sge(0, 8192)] };
        end.device.post_recv(Time::ZERO, end.qp, &[request]).unwrap();
    }
    a.post(SendOp::Send, &[a.sge(0, 64)]);
    a.device.transmit_pending(Time::ZERO, &wire);
    deliver(&b, &wire);
    assert_eq!(opcodes(&b), [WcOpcode::Recv]);
    b.post(reply, &[b.sge(0, reply_len)]);
    b.device.transmit_pending(Time::ZERO, &wire);
    (a, b, wire)
}

fn deliver(to: &End, wire: &Wire) {
    let mut scratch = ReceiveScratch::default();
    for packets in lock(&wire.0).drain(..) {
        to.device.receive(Time::ZERO, &packets.arrived(), &mut scratch);
    }
}

fn opcodes(end: &End) -> Vec<WcOpcode> {
    end.completions().iter().map(|completion| completion.opcode).collect()
}

#[test]
fn a_request_is_acknowledged_before_its_reply_is_received() {
    for (len, packets) in [(8, &[2][..]), (64, &[2]), (1024, &[2]), (4096, &[5]), (4000, &[1, 4])] {
        let (a, b, wire) = ask(SendOp::Send, len);
        let runs: Vec<usize> =
            lock(&wire.0).iter().map(|run| run.bytes.chunks(run.segment_size).count()).collect();
        assert_eq!(runs, packets, "{len} bytes");
        deliver(&a, &wire);
        assert_eq!(opcodes(&a), [WcOpcode::Send, WcOpcode::Recv], "{len} bytes");
        run(&a, &b, &wire);
        assert_eq!(opcodes(&b), [WcOpcode::Send]);
        quiet(&a);
        quiet(&b);
    }
}

#[test]
fn answers_to_what_was_asked_keep_their_order() {
    // A READ's answer and the acknowledgement of the SEND behind it: the latter alone would say
    // that the former is lost.
    let (a, b, wire) = pair();
    b.device
        .post_recv(Time::ZERO, b.qp, &[RecvRequest { wr_id: 9, sges: &[b.sge(0, 64)] }])
        .unwrap();
    a.post(SendOp::Read { remote: b.remote(0) }, &[a.sge(0, 64)]);
    a.post(SendOp::Send, &[a.sge(0, 64)]);
    run(&a, &b, &wire);
    assert_eq!(opcodes(&a), [WcOpcode::RdmaRead, WcOpcode::Send]);
    for counter in [Counter::DropImpliedNak, Counter::CompleterRetryErr] {
        assert_eq!(a.device.counters().value(counter), 0, "{}", counter.name());
    }
    quiet(&a);
}
