//! Programs that exchange their packets through shared memory (`URXE_SHM=on`).

use std::process::Command;

use crate::install::{EXPECTED, compile, install, text_of};
use crate::pair::exclusive;

#[test]
fn a_forked_child_sends_nothing_and_its_parent_goes_on() {
    let _exclusive = exclusive();
    let program = compile("ring_fork");
    let words = format!("--link rxe0=127.82.0.3 -- timeout 60 {}", program.display());
    let mut command: Command = install().run(&words);
    let output = command.env("URXE_SHM", "on").env("URXE_LOG", "debug").output().unwrap();
    let text = text_of(&output);
    assert!(output.status.success() && text.contains(EXPECTED), "{text}");
    assert!(text.contains("opened a ring"), "the messages took sockets: {text}");
}
