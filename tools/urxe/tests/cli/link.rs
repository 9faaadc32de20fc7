//! `urxe link`: adding, showing and deleting, from the first command to the last.

use crate::common::{Finish as _, User};

const BUILT_IN: &str =
    "link rxe0/1 state ACTIVE physical_state LINK_UP netdev lo address 127.0.0.1 mtu 4096\n";

/// Returns the lines of devices, without those of processes that have a device open.
fn devices(shown: String) -> String {
    shown
        .lines()
        .filter(|line| !line.starts_with("    process "))
        .flat_map(|line| [line, "\n"])
        .collect()
}

#[test]
fn without_configuration_there_is_rxe0_on_loopback() {
    let user = User::new();
    assert_eq!(devices(user.run("link").ok()), BUILT_IN);
    assert_eq!(devices(user.run("link show rxe0/1").ok()), BUILT_IN);
    assert!(!user.links().exists(), "showing writes nothing");
}

#[test]
fn links_are_added_shown_and_deleted() {
    let user = User::new();
    let added = user.run("link add rxe1 type rxe netdev lo");
    assert!(added.stderr.contains("the built-in device rxe0"), "{added:?}");
    added.ok();
    user.run("link add rxe2 127.0.0.2").ok();

    let shown = devices(user.run("link show").ok());
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 2, "{shown}");
    assert!(lines[0].starts_with(
        "link rxe1/1 state ACTIVE physical_state LINK_UP netdev lo address 127.0.0.1"
    ));
    assert_eq!(
        lines[1],
        "link rxe2/1 state ACTIVE physical_state LINK_UP netdev lo address 127.0.0.2 mtu 4096"
    );

    user.run("link del rxe1").ok();
    assert_eq!(devices(user.run("link show").ok()).lines().count(), 1);
    user.run("link delete rxe2").ok();
    assert_eq!(devices(user.run("link").ok()), BUILT_IN);
}

#[test]
fn json_has_the_keys_of_rdma() {
    let json = User::new().run("link show --json").json();
    let link = &json[0];
    for (key, value) in
        [("ifname", "rxe0"), ("state", "ACTIVE"), ("physical_state", "LINK_UP"), ("netdev", "lo")]
    {
        assert_eq!(link[key], value, "{link}");
    }
    assert_eq!(link["port"], 1);
    assert!(link["netdev_index"].as_u64().unwrap() > 0);
}

#[test]
fn the_environment_overrides_the_list() {
    let user = User::new();
    user.run("link add rxe1 127.0.0.2").ok();
    let shown = user.urxe("link").env("URXE_DEVICES", "a=127.0.0.3,b=lo").finish().ok();
    assert!(shown.starts_with("link a/1 ") && shown.contains("\nlink b/1 "), "{shown}");
    let added = user.urxe("link add rxe2 lo").env("URXE_DEVICES", "a=lo").finish();
    assert!(added.stderr.contains("URXE_DEVICES is set here"), "{added:?}");
    assert_eq!(devices(user.run("link").ok()).lines().count(), 2);
}

#[test]
fn mistakes_are_named() {
    let user = User::new();
    for (words, code, expected) in [
        (
            "link add rxe0 nosuch0",
            1,
            "device rxe0=nosuch0: no network interface nosuch0; there are: lo",
        ),
        ("link add rxe0 192.0.2.77", 1, "192.0.2.77 is not an address of this machine"),
        ("link add rxe0 type siw netdev lo", 2, "the only type of device is rxe"),
        ("link add 0rxe lo", 2, "a name is a letter"),
        ("link add rxe0", 2, "Usage"),
        ("link del rxe0", 1, "the built-in default"),
        ("link del rxe7", 1, "no link rxe7 in the built-in default; there are: rxe0"),
        ("link show rxe7", 1, "no link rxe7"),
    ] {
        let said = user.run(words).fails(code);
        assert!(said.contains(expected), "{words}: {said}");
    }
    assert!(!user.links().exists(), "nothing was written");

    user.run("link add rxe0 lo").ok();
    let said = user.run("link add rxe0 127.0.0.2").fails(1);
    let expected = format!("link rxe0 exists already in {}, on lo", user.links().display());
    assert!(said.contains(&expected), "{said}");
    std::fs::write(user.links(), "# mine\nrxe0 lo\n").unwrap();
    assert!(user.run("link").fails(1).contains("line 2, column 1"));
}

#[test]
fn a_device_that_is_gone_is_shown_with_the_reason() {
    let user = User::new();
    user.run("link add rxe0 lo").ok();
    std::fs::write(user.links(), "rxe0 = gone0\nrxe1 = lo\n").unwrap();
    let shown = user.run("link").ok();
    assert!(shown.starts_with(
        "link rxe0/1 state DOWN physical_state DISABLED netdev gone0 \
         error: no network interface gone0"
    ));
    assert!(shown.contains("\nlink rxe1/1 state ACTIVE"));
    assert_eq!(user.run("link show rxe0").code, Some(1));
}

#[test]
fn processes_are_listed_with_their_slots() {
    use urxe_stack::driver::{Engine, EngineConfig};
    use urxe_stack::link::{LinkSpec, Source};
    let [.., high, low] = std::process::id().to_be_bytes();
    let address = std::net::IpAddr::from([127, 90, high, low.max(1)]);
    let spec = LinkSpec { source: Source::Address(address), ..LinkSpec::built_in() };
    let open = || Engine::open(&spec, EngineConfig::default()).unwrap();
    let _engines = [open(), open()];
    let user = User::new();
    let run = |words| user.urxe(words).env("URXE_DEVICES", format!("a={address}")).finish();
    let pid = std::process::id();
    let text = run("link show").ok();
    for slot in 0..2 {
        let line = format!("    process address {address} slot {slot} pid {pid} uid ");
        assert!(text.lines().any(|shown| shown.starts_with(&line)), "{text}");
    }
    assert_eq!(text.lines().count(), 3, "{text}");
    let json = run("link show --json").json();
    assert_eq!(json[0]["processes"][1]["slot"], 1);
    assert_eq!(json[0]["processes"][1]["pid"], pid);
    let devinfo = run("devinfo").ok();
    assert!(devinfo.contains(&format!("{address} slot 1 pid {pid}")), "{devinfo}");
}
