//! The grammar of links: accepted and refused texts, and the positions of mistakes.

use proptest::prelude::*;

use super::*;

fn address(text: &str) -> Source {
    Source::Address(text.parse().unwrap())
}

fn entry(name: &str, source: Source) -> LinkSpec {
    LinkSpec::new(name.parse().unwrap(), source)
}

fn interface(name: &str) -> Source {
    Source::Interface(name.to_owned())
}

#[test]
fn a_list_of_two() {
    let links = parse_list("rxe0=10.0.0.1,rxe1=eth0").unwrap();
    assert_eq!(links, [entry("rxe0", address("10.0.0.1")), entry("rxe1", interface("eth0"))]);
}

#[test]
fn a_profile_belongs_to_the_entry_before_it() {
    let links = parse_list("nic = 10.0.0.1 , profile = mlx5,rxe1=eth0").unwrap();
    let mlx5 = Profile::named("mlx5");
    let nic = LinkSpec { profile: mlx5, ..entry("nic", address("10.0.0.1")) };
    assert_eq!(links, [nic.clone(), entry("rxe1", interface("eth0"))]);
    assert_eq!(nic.to_string(), "nic=10.0.0.1,profile=mlx5");
    assert_eq!("nic=10.0.0.1,profile=mlx5".parse::<LinkSpec>().unwrap(), nic);
    assert_eq!(parse_file("nic = 10.0.0.1, profile=mlx5 # a NIC\n").unwrap(), [nic]);
    let unnamed: LinkSpec = "eth0,profile=mlx5".parse().unwrap();
    assert_eq!((unnamed.name.as_str(), unnamed.source), ("mlx5_0", interface("eth0")));
    assert_eq!(
        refused("a=eth0,profile=mlx9"),
        (1, 8, ParseReason::UnknownProfile { given: "mlx9".to_owned() })
    );
    assert_eq!(
        refused("a=eth0,mtu=9000"),
        (1, 8, ParseReason::UnknownOption { given: "mtu=9000".to_owned() })
    );
    assert_eq!(refused("profile=mlx5"), (1, 1, ParseReason::ReservedName));
}

#[test]
fn blanks_and_empty_entries_count_for_nothing() {
    let links = parse_list(" rxe0 = fd00::1 ,, rxe1=veth-a@b,").unwrap();
    assert_eq!(links, [entry("rxe0", address("fd00::1")), entry("rxe1", interface("veth-a@b"))]);
    assert_eq!(parse_list("").unwrap(), []);
    assert_eq!(parse_list(" , ").unwrap(), []);
}

#[test]
fn a_file_with_comments() {
    let text = "# mine\n\nrxe0 = 10.0.0.1 # the lab\r\n  rxe1=eth0\n";
    assert_eq!(
        parse_file(text).unwrap(),
        [entry("rxe0", address("10.0.0.1")), entry("rxe1", interface("eth0"))]
    );
}

#[test]
fn a_mapped_address_is_the_ipv4_address() {
    assert_eq!("rxe0=::ffff:10.0.0.1".parse::<LinkSpec>().unwrap().source, address("10.0.0.1"));
}

/// Parses a file that must be refused. Returns line, column and reason.
fn refused(text: &str) -> (usize, usize, ParseReason) {
    let error = parse_file(text).unwrap_err();
    (error.line, error.column, error.reason)
}

#[test]
fn mistakes_have_a_place_and_a_reason() {
    let given = |text: &str| text.to_owned();
    assert_eq!(refused("\n  rxe0"), (2, 3, ParseReason::NoEquals { given: given("rxe0") }));
    assert_eq!(refused(" =eth0"), (1, 1, ParseReason::EmptyName));
    assert_eq!(refused("rxe0= # nothing"), (1, 6, ParseReason::EmptySource));
    assert_eq!(
        refused("0rxe=eth0"),
        (1, 1, ParseReason::NameCharacter { given: given("0rxe"), found: '0' })
    );
    assert_eq!(
        refused("rx/e=eth0"),
        (1, 1, ParseReason::NameCharacter { given: given("rx/e"), found: '/' })
    );
    let long = "a".repeat(64);
    assert_eq!(
        refused(&format!("{long}=eth0")),
        (1, 1, ParseReason::NameTooLong { given: long.clone() })
    );
    assert_eq!(refused("rxe0 = eth0/1"), (1, 8, ParseReason::BadSource { given: given("eth0/1") }));
    assert_eq!(
        refused("rxe0=10.0.0.1=2"),
        (1, 6, ParseReason::BadSource { given: given("10.0.0.1=2") })
    );
    assert_eq!(refused("rxe0=an-interface-far-too-long").1, 6);
}

#[test]
fn a_name_cannot_stand_twice() {
    let error = parse_list("rxe0=eth0, rxe0=eth1").unwrap_err();
    assert_eq!((error.line, error.column), (1, 12));
    assert_eq!(
        error.reason,
        ParseReason::Duplicate { given: "rxe0".parse().unwrap(), first_line: 1, first_column: 1 }
    );
}

#[test]
fn the_longest_names_are_accepted() {
    let name = "a".repeat(MAX_NAME_LEN);
    let source = "e".repeat(MAX_INTERFACE_LEN);
    assert_eq!(
        format!("{name}={source}").parse::<LinkSpec>().unwrap(),
        entry(&name, interface(&source))
    );
}

/// Generates every possible link.
fn any_link() -> impl Strategy<Value = LinkSpec> {
    let source = prop_oneof![
        any::<[u8; 4]>().prop_map(|bytes| Source::Address(IpAddr::from(bytes))),
        any::<[u8; 16]>().prop_map(|bytes| Source::Address(IpAddr::from(bytes).to_canonical())),
        "[a-z][a-z0-9@_.-]{0,14}".prop_map(Source::Interface),
    ];
    ("[A-Za-z][A-Za-z0-9_.-]{0,62}", source)
        .prop_map(|(name, source)| LinkSpec::new(name.parse().unwrap(), source))
}

proptest! {
    #[test]
    fn what_is_shown_is_read_back(link in any_link()) {
        prop_assert_eq!(link.to_string().parse::<LinkSpec>(), Ok(link.clone()));
        let line = format!("  {} = {}\t# x", link.name, link.source);
        prop_assert_eq!(parse_file(&line), Ok(vec![link]));
    }

    #[test]
    fn any_text_is_read_or_refused_at_a_place_in_it(
        text in "[rxe0-9=,#. \n\té/:]{0,60}|\\PC{0,60}",
    ) {
        for parsed in [parse_list(&text), parse_file(&text)] {
            match parsed {
                Ok(links) => {
                    for link in &links {
                        prop_assert_eq!(&link.to_string().parse::<LinkSpec>().unwrap(), link);
                    }
                }
                Err(error) => {
                    let longest = text.chars().count() + 1;
                    prop_assert!((1..=longest).contains(&error.column), "{error}");
                    let lines = text.lines().count().max(1);
                    prop_assert!((1..=lines).contains(&error.line), "{error}");
                }
            }
        }
    }
}
