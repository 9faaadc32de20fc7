//! The test of `transition.md`, which shows the table to readers and its changes to reviewers.

use std::fmt::Write;

use super::*;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/qp/transition.md");

#[test]
fn the_document_agrees_with_the_table() {
    let rendered = render();
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(FILE, &rendered).unwrap();
    }
    let kept = std::fs::read_to_string(FILE).unwrap();
    assert!(
        kept == rendered,
        "stack/device/src/qp/transition.md differs from the table: read the difference after\n\
         UPDATE_SNAPSHOTS=1 cargo test -p urxe-device the_document_agrees_with_the_table"
    );
}

fn render() -> String {
    let mut out = String::from(
        "# State transitions of queue pairs\n\n\
         Made from the table in `transition.rs` by its test; do not edit.\n\n\
         ```mermaid\nstateDiagram-v2\n    [*] --> RESET\n",
    );
    for from in QpState::ALL {
        for to in QpState::ALL {
            let types: Vec<_> =
                QpType::ALL.into_iter().filter(|&t| attributes(from, to, t).is_some()).collect();
            match types.len() {
                0 => continue,
                5 => writeln!(out, "    {from} --> {to}").unwrap(),
                _ => {
                    let names: Vec<_> = types.iter().map(|t| t.as_str()).collect();
                    writeln!(out, "    {from} --> {to}: {}", names.join(", ")).unwrap();
                }
            }
        }
    }
    out.push_str("    RTS --> SQE: send error (UC, UD)\n```\n\n");
    out.push_str("SQE is entered by a send error and ERR by any fatal one, without a call.\n");
    for qp_type in QpType::ALL {
        write!(out, "\n## {qp_type}\n\n| from | to | required | optional |\n|---|---|---|---|\n")
            .unwrap();
        for from in QpState::ALL {
            for to in QpState::ALL {
                match attributes(from, to, qp_type) {
                    None => writeln!(out, "| {from} | {to} | not possible | |").unwrap(),
                    Some(Attributes { required, optional }) => {
                        writeln!(
                            out,
                            "| {from} | {to} | {} | {} |",
                            names(required),
                            names(optional)
                        )
                        .unwrap();
                    }
                }
            }
        }
    }
    out
}

fn names(mask: Mask) -> String {
    let names: Vec<_> = mask.iter_names().map(|(name, _)| name).collect();
    if names.is_empty() { "–".into() } else { names.join(" ") }
}
