use super::*;

#[test]
fn every_probe_says_what_it_found() {
    let probes = run();
    let names: Vec<_> = probes.iter().map(|probe| probe.name).collect();
    for probe in &probes {
        assert!(!probe.detail.is_empty() && !probe.consequence.is_empty(), "{probe:?}");
        assert!(!probe.detail.ends_with('.') && !probe.consequence.ends_with('.'), "{probe:?}");
        assert!(probe.outcome != Outcome::Works || probe.advice.is_none(), "{probe:?}");
    }
    let mut unique = names.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), names.len());
}

/// What every Linux grants that this crate is tested on.
#[test]
fn linux_grants_the_port_with_gso_and_steering() {
    for probe in [
        transport::port(),
        transport::gso(),
        transport::gro(),
        transport::path_errors(),
        sharing::steering(),
    ] {
        // 127.0.0.1 may be in use by another program, which the port's probe tells.
        let expected = if probe.detail.contains("127.0.0.1 is taken") {
            Outcome::Limited
        } else {
            Outcome::Works
        };
        assert_eq!(probe.outcome, expected, "{probe:?}");
    }
}

#[test]
fn the_receive_buffer_holds_what_it_was_granted() {
    let probe = buffers::receive();
    let granted = sysctl("net/core/rmem_max").unwrap() >= 8 << 20;
    assert_eq!(probe.outcome, if granted { Outcome::Works } else { Outcome::Limited }, "{probe:?}");
    assert_eq!(probe.advice.is_some(), !granted);
    let held: usize =
        probe.detail.split("; ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(held >= 10, "{probe:?}");
}

#[test]
fn a_taken_port_leaves_the_rest_untried() {
    let error = OpenPortError::AddressInUse {
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        owner: None,
        free: None,
    };
    let probe = untried("anything", &error);
    assert_eq!(probe.outcome, Outcome::Unverified);
    assert!(probe.detail.contains("no loopback address has it free"), "{probe:?}");
}
