//! Replies that take the acknowledgement of the request along. The acknowledgement is the short
//! last packet of their run, and the receiver handles it first. If no packet can follow the reply
//! in its run, the acknowledgement goes before it.

use super::*;

/// `a` sends a request, and `b` replies before it acknowledges.
fn ask(reply: SendOp, reply_len: u32) -> (Host, Host, Wire) {
    let (a, b, wire) = pair();
    for end in [&a, &b] {
        end.post_recv(9, &[end.sge(0, 8192)]);
    }
    a.post(SendOp::Send, &[a.sge(0, 64)]);
    a.transmit(&wire);
    deliver(&b, &wire);
    assert_eq!(opcodes(&b), [WcOpcode::Recv]);
    b.post(reply, &[b.sge(0, reply_len)]);
    b.transmit(&wire);
    (a, b, wire)
}

fn deliver(to: &Host, wire: &Wire) {
    wire.take().iter().for_each(|run| wire.deliver(&to.device, Time::ZERO, run));
}

fn opcodes(end: &Host) -> Vec<WcOpcode> {
    end.completions().iter().map(|completion| completion.opcode).collect()
}

#[test]
fn a_request_is_acknowledged_before_its_reply_is_received() {
    for (len, packets) in [(8, &[2][..]), (64, &[2]), (1024, &[2]), (4096, &[5]), (4000, &[1, 4])] {
        let (a, b, wire) = ask(SendOp::Send, len);
        let runs = wire.take();
        let lengths: Vec<usize> = runs.iter().map(|run| run.segments().count()).collect();
        assert_eq!(lengths, packets, "{len} bytes");
        runs.iter().for_each(|run| wire.deliver(&a.device, Time::ZERO, run));
        assert_eq!(opcodes(&a), [WcOpcode::Send, WcOpcode::Recv], "{len} bytes");
        run(&a, &b, &wire);
        assert_eq!(opcodes(&b), [WcOpcode::Send]);
        assert_quiet(&a);
        assert_quiet(&b);
    }
}

#[test]
fn responses_and_acknowledgements_keep_their_order() {
    // The acknowledgement of the SEND behind a READ response would, alone, report the response as
    // lost.
    let (a, b, wire) = pair();
    b.post_recv(9, &[b.sge(0, 64)]);
    a.post(SendOp::Read { remote: b.remote(0) }, &[a.sge(0, 64)]);
    a.post(SendOp::Send, &[a.sge(0, 64)]);
    run(&a, &b, &wire);
    assert_eq!(opcodes(&a), [WcOpcode::RdmaRead, WcOpcode::Send]);
    for counter in [Counter::DropImpliedNak, Counter::CompleterRetryErr] {
        assert_eq!(a.counter(counter), 0, "{}", counter.name());
    }
    assert_quiet(&a);
}
