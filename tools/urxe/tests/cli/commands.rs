//! Behaviour of all subcommands, `urxe devinfo` and `urxe doctor`.

use std::process::Command;

use urxe_stack::device::Limits;
use urxe_stack::driver::limits_here;

use crate::common::{Finish as _, User};

#[test]
fn bad_command_lines_have_exit_code_2_and_usage() {
    for arguments in
        ["", "nosuch", "decode", "link frobnicate", "devinfo -i 2", "devinfo --json -v"]
    {
        let stderr = User::new().run(arguments).fails(2);
        assert!(
            stderr.contains("Usage") || stderr.contains("invalid value"),
            "{arguments:?}: {stderr}"
        );
    }
}

#[test]
fn help_and_version() {
    let user = User::new();
    assert_eq!(user.run("--version").ok(), format!("urxe {}\n", env!("CARGO_PKG_VERSION")));
    for subcommand in ["link", "devinfo", "doctor", "decode"] {
        assert!(user.run("--help").ok().contains(&format!("\n  {subcommand}")));
        assert!(user.run(&format!("{subcommand} --help")).ok().contains("Usage: urxe"));
    }
}

/// Runs with 60 columns, and returns the output, whose lines must all fit.
#[track_caller]
fn narrow(user: &User, words: &str) -> String {
    let text = user.urxe(words).env("COLUMNS", "60").finish().ok();
    for line in text.lines() {
        assert!(line.chars().count() <= 60, "{words}: {line:?} in\n{text}");
    }
    text
}

#[test]
fn help_fits_60_columns_without_broken_words() {
    let user = User::new();
    let help = user.run("--help").ok();
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| !line.is_empty());
    let commands: Vec<_> = commands.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(commands.len() >= 11, "{help}");
    for command in commands.into_iter().chain(["", "link add", "link show", "link del"]) {
        for option in ["-h", "--help"] {
            let words = format!("{command} {option}");
            let wide = user.urxe(&words).env("COLUMNS", "1000").finish().ok();
            let narrow = narrow(&user, &words);
            let split = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(split(&narrow), split(&wide), "{words}");
        }
    }
}

#[test]
fn tables_and_doctor_fit_60_columns() {
    let user = User::new();
    // The exit code depends on the machine.
    let doctor = user.urxe("doctor").env("COLUMNS", "60").finish().stdout;
    // A long path stays whole, on a line of its own.
    let fits = |line: &str| line.chars().count() <= 60 || !line.trim().contains(' ');
    assert!(doctor.lines().all(fits), "{doctor}");
    let narrow = |words| narrow(&user, words);
    let text = narrow("pingpong --quick -n 5 -d 127.64.54.1");
    assert!(text.contains("FETCH_ADD") && text.contains("µs p99"), "{text}");
    let text = narrow("perf write fetch-add -s 1M -n 20 --rounds 1 -d 127.65.7.1");
    assert!(text.contains("FETCH_ADD") && text.contains("GSO+GRO"), "{text}");
    let text = narrow("perf write -s 64 -n 20 --rounds 1 --compare-addresses -d 127.65.7.2");
    assert!(text.contains("addresses"), "{text}");
}

#[test]
fn a_bad_log_filter_is_named() {
    let stderr = User::new().urxe("link").env("URXE_LOG", "urxe=loud").finish().fails(2);
    assert!(stderr.contains("URXE_LOG=\"urxe=loud\" is not a log filter"), "{stderr}");
}

#[test]
fn devinfo_has_the_form_of_ibv_devinfo() {
    let text = User::new().run("devinfo").ok();
    // Other processes on this machine may have the device open; their lines are removed.
    let text: String =
        text.split_inclusive('\n').filter(|line| !line.contains("\tprocess:")).collect();
    let version = env!("CARGO_PKG_VERSION");
    insta::assert_snapshot!(text.replace(&format!("\t{version}\n"), "\tVERSION\n"));
}

#[test]
fn devinfo_verbose_shows_limits_and_gids() {
    let text = User::new().run("devinfo -v -d rxe0").ok();
    // The limit follows the descriptor limit, if that is below 8192.
    let groups = limits_here(Limits::default()).max_mcast_grp;
    for line in [
        "\tmax_sge:\t\t\t32\n",
        "\tatomic_cap:\t\t\tATOMIC_HCA (1)\n",
        &format!("\tmax_mcast_grp:\t\t\t{groups}\n"),
        "\tmax_mcast_qp_attach:\t\t56\n",
        "\tmax_total_mcast_qp_attach:\t458752\n",
        "\t\t\tGID[  0]:\t\t::ffff:127.0.0.1, RoCE v2\n",
        "\t\t\tGID[  3]:\t\t::ffff:127.0.0.1, RoCE v2\n",
    ] {
        assert!(text.contains(line), "{line:?} in {text}");
    }
}

#[test]
fn devinfo_lists_and_chooses() {
    let user = User::new();
    user.run("link add rxe1 127.0.0.2").ok();
    user.run("link add rxe2 lo").ok();
    assert_eq!(user.run("devinfo -l").ok(), "2 HCAs found:\n\trxe1\n\trxe2\n\n");
    let json = user.run("devinfo --json -d rxe1").json();
    assert_eq!(json.as_array().unwrap().len(), 1);
    assert_eq!(json[0]["port"]["gids"][0]["gid"], "::ffff:127.0.0.2");
    let stderr = user.run("devinfo -d rxe9").fails(1);
    let file = user.links();
    let expected = format!("no link rxe9 in {}; there are: rxe1, rxe2", file.display());
    assert!(stderr.contains(&expected), "{stderr}");
    std::fs::write(user.links(), "rxe1 = gone0\nrxe2 = lo\n").unwrap();
    let run = user.run("devinfo");
    assert!(run.stdout.contains("hca_id:\trxe2"), "{run:?}");
    let expected = format!("device rxe1=gone0 ({}): no network interface gone0", file.display());
    let stderr = run.fails(1);
    assert_eq!(stderr.matches("gone0").count(), 2, "once in each part: {stderr}");
    assert!(stderr.contains(&expected), "{stderr}");
}

#[test]
fn doctor_says_the_same_in_both_forms() {
    let user = User::new();
    let run = user.run("doctor --json");
    let json: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let works = json["works"].as_bool().unwrap();
    assert_eq!(run.code, Some(i32::from(!works)));
    let text = user.run("doctor");
    assert_eq!((text.code, text.stderr.as_str()), (run.code, ""));
    for probe in json["probes"].as_array().unwrap() {
        let first_word = probe["name"].as_str().unwrap().split(' ').next().unwrap();
        assert!(text.stdout.contains(first_word), "{first_word} in {}", text.stdout);
        assert_ne!(probe["consequence"], "");
    }
    assert!(text.stdout.contains("on this machine"), "{}", text.stdout);
    let outcome = |name: &str| {
        let probes = json["probes"].as_array().unwrap();
        let probe =
            probes.iter().find(|probe| probe["name"].as_str().unwrap().starts_with(name)).unwrap();
        probe["outcome"].clone()
    };
    assert_eq!(outcome("several processes"), outcome("steering"), "{}", run.stdout);
}

#[test]
#[ignore = "needs root in a network namespace of its own: cargo xtask namespace"]
fn doctor_sees_the_identifications() {
    let interfaces = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    assert_eq!(interfaces.lines().count(), 3, "not a namespace of the test's own: {interfaces}");
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
    assert!(up.unwrap().success());
    let json = User::new().run("doctor --json").json();
    let mut probes = json["probes"].as_array().unwrap().iter();
    let probe =
        probes.find(|probe| probe["name"].as_str().unwrap().contains("identification")).unwrap();
    assert_eq!(probe["outcome"], "works", "{probe}");
    assert!(probe["detail"].as_str().unwrap().contains("0 to 15"), "{probe}");
}
