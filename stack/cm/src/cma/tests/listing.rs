//! Listings of identifiers.

use std::collections::BTreeMap;

use urxe_types::listing::ListedId;
use urxe_wire::Qpn;
use urxe_wire::mad::PortSpace;

use super::two_hosts::TwoHosts;
use crate::cma::ConnParam;

fn counts<const N: usize>(pairs: [(&str, u64); N]) -> BTreeMap<String, u64> {
    pairs.map(|(name, value)| (name.to_owned(), value)).into()
}

fn listed(number: u64, state: &str, src: &str) -> ListedId {
    ListedId {
        cm_idn: number,
        qp_type: "RC".to_owned(),
        state: state.to_owned(),
        ps: "TCP".to_owned(),
        src_addr: Some(src.parse().unwrap()),
        ..ListedId::default()
    }
}

#[test]
fn a_listing_has_states_and_numbers_of_both_sides() {
    let mut hosts = TwoHosts::new();
    // An identifier that is not bound, and so on no device.
    let idle = hosts.b.id(PortSpace::TCP);
    let param = ConnParam { qpn: Qpn::masked(0x17), ..ConnParam::default() };
    let (listener, active, passive) = hosts.asked(&param);
    let own = hosts.a.cma.addresses(active).unwrap().0.unwrap();

    let asking = hosts.a.cma.listing(hosts.a.key).unwrap();
    assert_eq!(asking.ids[0].cm_state.as_deref(), Some("REQ_SENT"));
    assert_eq!((asking.ids[0].lqpn, asking.ids[0].rqpn), (0x17, None));
    let asked = hosts.b.cma.listing(hosts.b.key).unwrap();
    assert_eq!(asked.ids[1].cm_state.as_deref(), Some("MRA_REQ_SENT"));
    assert_eq!((asked.ids[1].lqpn, asked.ids[1].rqpn), (0, Some(0x17)));

    let param = ConnParam { qpn: Qpn::masked(0x42), ..ConnParam::default() };
    hosts.accept(passive, &param);
    hosts.establish(active);
    let at_a = ListedId {
        lqpn: 0x17,
        rqpn: Some(0x42),
        cm_state: Some("ESTABLISHED".to_owned()),
        dst_addr: Some("10.0.0.2:9".parse().unwrap()),
        ..listed(active.0, "CONNECT", &own.to_string())
    };
    let at_b = ListedId {
        lqpn: 0x42,
        rqpn: Some(0x17),
        dst_addr: Some(own),
        ..ListedId { cm_idn: passive.0, src_addr: at_a.dst_addr, ..at_a.clone() }
    };
    let listing = hosts.a.cma.listing(hosts.a.key).unwrap();
    assert_eq!(listing.ids, [at_a]);
    assert_eq!(listing.communications, counts([("ESTABLISHED", 1)]));
    assert_eq!(
        listing.counters,
        counts([("cm_tx_msgs/req", 1), ("cm_rx_msgs/rep", 1), ("cm_tx_msgs/rtu", 1)])
    );
    let listing = hosts.b.cma.listing(hosts.b.key).unwrap();
    assert_eq!(listing.ids, [listed(listener.0, "LISTEN", "0.0.0.0:9"), at_b]);

    // A connection without an identifier stays until its end.
    hosts.a.cma.disconnect(hosts.now, active).unwrap();
    hosts.run();
    hosts.b.cma.disconnect(hosts.now, passive).unwrap();
    hosts.run();
    hosts.destroy([active], [passive, listener, idle]);
    let listing = hosts.a.cma.listing(hosts.a.key).unwrap();
    assert_eq!((listing.ids, listing.communications), (vec![], counts([("TIMEWAIT", 1)])));
    hosts.assert_empty();
}
