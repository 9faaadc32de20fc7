//! Any packet that can be constructed, emitted and parsed back, with an ICRC over either version of
//! IP.

use std::net::IpAddr;

use arbitrary::{Arbitrary, Unstructured};
use urxe_wire::packet::{ICRC_LEN, MAX_PACKET_LEN, MAX_PAYLOAD, packet_len, pad_count};
use urxe_wire::{
    Bth, HeaderSet, IcrcSeed, IcrcSolver, IcrcVerdict, Opcode, PKey, PacketRepr, PacketView,
    PayloadRule, Psn, Qpn, XrcEth,
};

use crate::headers::{Values, ext};

#[derive(Arbitrary, Debug)]
struct Input {
    opcode: u8,
    solicited: bool,
    mig_req: bool,
    fecn: bool,
    becn: bool,
    ack_req: bool,
    pkey: u16,
    dest_qp: u32,
    psn: u32,
    srq: u32,
    values: Values,
    payload_len: u16,
    fill: u8,
    addresses: (u128, u128),
    v6: bool,
    port: u16,
    identification: u16,
}

/// Runs one input.
pub fn run(bytes: &[u8]) {
    if let Ok(input) = Input::arbitrary(&mut Unstructured::new(bytes)) {
        check(&input);
    }
}

fn check(input: &Input) {
    let count = Opcode::all().len();
    let opcode = Opcode::all().nth(usize::from(input.opcode) % count).expect("in range");
    let mut bth = Bth::new(opcode, Qpn::masked(input.dest_qp), Psn::new(input.psn));
    bth.solicited = input.solicited;
    bth.mig_req = input.mig_req;
    bth.fecn = input.fecn;
    bth.becn = input.becn;
    bth.ack_req = input.ack_req;
    bth.pkey = PKey(input.pkey);
    let xrceth =
        opcode.info().has(HeaderSet::XRCETH).then_some(XrcEth { srq: Qpn::masked(input.srq) });
    let repr = PacketRepr { bth, xrceth, ext: ext(opcode, &input.values) };
    let len = match opcode.info().payload {
        PayloadRule::None => 0,
        PayloadRule::Exactly(n) => usize::from(n),
        PayloadRule::Any => usize::from(input.payload_len) % (MAX_PAYLOAD + 1),
    };
    let payload: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(31) ^ input.fill).collect();

    let mut buf = [0xa5; MAX_PACKET_LEN + 4];
    let end = repr.emit(&payload, &mut buf).expect("every header value can be emitted");
    assert_eq!(end + ICRC_LEN, packet_len(repr.headers_len(), len));
    assert!(buf[end..].iter().all(|b| *b == 0xa5), "written behind the pad");
    let view = PacketView::parse(&buf[..end + ICRC_LEN]).expect("an emitted packet parses");
    let mut want = repr;
    want.bth.pad_count = pad_count(len);
    assert_eq!(view.to_repr(), want);
    assert_eq!(view.payload(), &payload[..]);

    let mut again = [0x5a; MAX_PACKET_LEN + 4];
    assert_eq!(view.to_repr().emit(view.payload(), &mut again), Ok(end));
    assert_eq!(again[..end], buf[..end]);

    let ip = |n: u128| {
        if input.v6 {
            IpAddr::from(n.to_be_bytes())
        } else {
            IpAddr::from((n as u32).to_be_bytes())
        }
    };
    let seed = IcrcSeed::new(ip(input.addresses.0), input.port, ip(input.addresses.1), 4791)
        .expect("one family");
    let len = seed.append(input.identification, &mut buf, end).expect("there is room");
    let verdict = seed.verify(&mut IcrcSolver::new(), &buf[..len], input.identification);
    let identification = if input.v6 { 0 } else { input.identification };
    assert_eq!(verdict, IcrcVerdict::Exact { identification });
    let solved = seed.verify(&mut IcrcSolver::new(), &buf[..len], !input.identification);
    assert_ne!(
        solved,
        IcrcVerdict::Bad,
        "another position in the run explains the ICRC all the same"
    );
}
