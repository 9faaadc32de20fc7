//! C programs that are compiled against Debian's headers and linked with `-libverbs`.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::OnceLock;

use urxe_tests::programs::lists;

use crate::install::{EXPECTED, compile, compile_as, install, ok, passes, text_of};
use crate::pair::{ONE, TWO, exclusive, run_pair};

fn compiled() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile("verbs"))
}

#[test]
fn two_ends_of_a_first_program_send_read_and_write() {
    compile("exchange");
    for pair in lists::exchanges() {
        run_pair(&pair, ONE).unwrap();
        run_pair(&pair, TWO).unwrap();
    }
}

#[test]
fn errors_events_and_work_requests_are_as_a_c_program_expects() {
    let _exclusive = exclusive();
    passes("--link rxe0=127.79.0.2", compiled(), "");
}

#[test]
fn buffers_of_the_library_are_registered_by_either_verb() {
    let _exclusive = exclusive();
    passes("--link rxe0=127.79.0.27", &compile("buffers"), "");
}

#[test]
fn an_address_handle_is_its_protection_domains_and_its_devices_alone() {
    let _exclusive = exclusive();
    let links = "--link rxe0=127.79.0.25 --link rxe1=127.79.0.26";
    let words = format!("{links} -- timeout 60 {}", compile("datagrams").display());
    let output = install().run(&words).env("URXE_LOG", "warn").output().unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (String::from_utf8(output.stdout).unwrap(), output.status.success()),
        (EXPECTED.to_owned(), true),
        "{log}"
    );
    for reason in [
        "ibv_post_send: the address handle belongs to device rxe1=127.79.0.26, but the queue pair",
        "ibv_post_send: the address handle belongs to another protection domain",
        "ibv_wr_complete: the address handle belongs to device rxe1=127.79.0.26, but",
        "ibv_wr_complete: the address handle belongs to another protection domain",
    ] {
        assert!(log.contains(reason), "{reason} is not in\n{log}");
    }
}

#[test]
fn a_group_message_reaches_every_attached_queue_pair() {
    let _exclusive = exclusive();
    let program = compile_as("../kernel/guest/group", "bin/group", &["-libverbs"]);
    let [.., high, low] = std::process::id().to_be_bytes();
    let group = format!("{} -i lo -m 239.198.{high}.{low}", program.display());
    let mut listener =
        install().run(&format!("--link rxe0=127.79.0.27 -- timeout 60 {group} -l -q 3"));
    let mut listener = listener.stdout(Stdio::piped()).spawn().unwrap();
    let mut text = BufReader::new(listener.stdout.take().unwrap());
    let mut line = String::new();
    text.read_line(&mut line).unwrap();
    assert_eq!(line, "joined\n");
    let sent = ok(&mut install().run(&format!("--link rxe0=127.79.0.28 -- timeout 60 {group}")));
    assert_eq!(sent, "OK 32\n");
    // The program prints this line after it has detached its queue pairs.
    line.clear();
    text.read_line(&mut line).unwrap();
    assert_eq!(line, "OK 96 from 127.79.0.28\n");
    assert!(listener.wait().unwrap().success());
}

#[test]
fn children_leave_inherited_objects_alone_and_open_their_own_device() {
    let _exclusive = exclusive();
    passes("--link rxe0=127.79.0.6", compiled(), "fork");
}

#[test]
fn threads_take_turns_at_completions_and_moderation_holds_back_the_event() {
    let _exclusive = exclusive();
    passes("--link rxe0=127.79.0.25", &compile("completions"), "");
    // With the variable, the library's thread stays on the processor of the thread that opens.
    let words = format!("--link rxe0=127.79.0.25 -- {} inherits", compile("completions").display());
    assert_eq!(ok(install().run(&words).env("URXE_AFFINITY", "off")), EXPECTED);
}

#[test]
fn objects_of_another_device_or_in_use_are_refused() {
    let _exclusive = exclusive();
    passes("--link rxe0=127.79.0.26 --link rxe1=127.79.0.27", &compile("two_devices"), "");
}

#[test]
fn send_queues_stop_and_go_on_and_alternate_paths_are_kept() {
    let _exclusive = exclusive();
    passes("--link rxe0=127.79.0.28", &compile("queue_pairs"), "");
}

#[test]
fn polled_completions_free_the_entries_of_strict_send_queues() {
    let _exclusive = exclusive();
    let program = compile("send_slots");
    passes("--link rxe0=127.79.0.29", &program, "");
    let words = format!("--link rxe0=127.79.0.29 -- timeout 60 {} strict", program.display());
    let mut command = install().run(&words);
    let output = command.env("URXE_STRICT", "queues").env("URXE_LOG", "warn").output().unwrap();
    let text = text_of(&output);
    assert!(output.status.success() && text.contains(EXPECTED), "{text}");
    assert!(text.contains("signal at least one of each 4 sends"), "{text}");
}

#[test]
fn texts_and_rates_are_the_originals() {
    let ours = ok(&mut install().run(&format!("-- {} texts", compiled().display())));
    let theirs = ok(install().user(compiled()).arg("texts"));
    assert_eq!(ours, theirs);
}
