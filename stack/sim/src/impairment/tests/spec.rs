//! Faults as text.

use super::super::{FaultError, FaultSpec};
use urxe_types::rng::Probability;

#[test]
fn every_fault_is_read_and_shown_as_it_was_given() {
    let text = "loss=1%,duplicate=0.5%,reorder=0.0001%,corrupt=100%,burst=4,late=200us,delay=50us,jitter=3ms,rate=100M,seed=7";
    let spec: FaultSpec = text.parse().unwrap();
    assert_eq!(spec.to_string(), text);
    assert_eq!(spec.link.loss, Probability::from_ppm(10_000));
    assert_eq!(spec.link.duplicate, Probability::from_ppm(5_000));
    assert_eq!(spec.link.reorder, Probability::from_ppm(1));
    assert_eq!(spec.link.corrupt, Probability::ALWAYS);
    let link = &spec.link;
    assert_eq!((link.loss_burst_max, link.reorder_delay_ns), (4, 200_000));
    assert_eq!((link.delay_ns, link.jitter_ns), (50_000, 3_000_000));
    assert_eq!((link.bandwidth_bps, spec.seed), (Some(100_000_000), Some(7)));
    assert_eq!(" loss = 1% , seed=7 ".parse::<FaultSpec>().unwrap().to_string(), "loss=1%,seed=7");
    assert!(!spec.is_harmless() && "seed=1,loss=0%".parse::<FaultSpec>().unwrap().is_harmless());
}

#[test]
fn mistakes_are_named() {
    for (text, told) in [
        ("", "\"\" is no fault; write NAME=VALUE"),
        ("loss", "\"loss\" is no fault"),
        ("loss=1%,", "\"\" is no fault"),
        ("los=1%", "there is no fault \"los\"; there are loss,"),
        ("loss=1%,loss=2%", "loss is given twice"),
        ("loss=1", "loss=1: expected a share of the packets from 0% to 100%"),
        ("loss=101%", "expected a share"),
        ("loss=100.1%", "expected a share"),
        ("loss=0.00001%", "expected a share"),
        ("loss=-1%", "expected a share"),
        ("loss=.5%", "expected a share"),
        ("loss=99999999999%", "expected a share"),
        ("delay=50", "delay=50: expected a time of at most 60 s with its unit"),
        ("delay=61s", "expected a time"),
        ("delay=99999999999999999999s", "expected a time"),
        ("jitter=1.5ms", "expected a time"),
        ("loss=1%,burst=0", "expected a number of packets"),
        ("burst=3", "burst says how a loss is; give loss=1%, too"),
        ("late=3us", "late says how a reorder is"),
        ("rate=0M", "expected bits a second"),
        ("rate=99999999999G", "expected bits a second"),
        ("seed=x", "expected a whole number"),
    ] {
        let error: FaultError = text.parse::<FaultSpec>().unwrap_err();
        assert!(error.to_string().contains(told), "{text:?}: {error}");
    }
}
