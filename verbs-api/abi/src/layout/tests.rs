//! Compares the structures with a C compiler's layout of the installed headers (Debian's
//! `libibverbs-dev`).

use std::fmt::Write;
use std::fs;
use std::process::Command;

use super::check::CHECKED;

/// Returns the header's name of a field that has another name here.
fn c_name(structure: &str, field: &str) -> String {
    match (structure, field) {
        ("ibv_odp_caps", _) | (_, "rx_hash_conf") => field.to_owned(),
        _ => field.trim_end_matches('_').to_owned(),
    }
}

/// Returns a C program that prints a line for each structure and each field.
fn program() -> String {
    let mut text = String::from(
        "#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/verbs.h>\n\
         #include <rdma/rdma_cma.h>\nint main(void) {\n",
    );
    for (structure, _, fields) in CHECKED {
        writeln!(text, "printf(\"{structure} %zu\\n\", sizeof(struct {structure}));").unwrap();
        for (field, _) in *fields {
            let name = c_name(structure, field);
            writeln!(
                text,
                "printf(\"{structure}.{field} %zu\\n\", offsetof(struct {structure}, {name}));"
            )
            .unwrap();
        }
    }
    text.push_str("return 0; }\n");
    text
}

#[test]
#[ignore = "needs gcc and libibverbs-dev: cargo xtask programs installs them"]
fn a_c_compiler_lays_them_out_alike() {
    let folder = tempfile::tempdir().unwrap();
    let (source, binary) = (folder.path().join("layout.c"), folder.path().join("layout"));
    fs::write(&source, program()).unwrap();
    let compiled = Command::new("gcc").arg(&source).arg("-o").arg(&binary).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let output = Command::new(&binary).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let mut lines = said.lines();
    for (structure, size, fields) in CHECKED {
        // rdma-core 45 appended a function to queue pairs.
        let size =
            if *structure == "ibv_qp_ex" && said.contains("ibv_qp_ex 352\n") { 352 } else { *size };
        assert_eq!(lines.next(), Some(format!("{structure} {size}").as_str()));
        for (field, offset) in *fields {
            assert_eq!(lines.next(), Some(format!("{structure}.{field} {offset}").as_str()));
        }
    }
    assert_eq!(lines.next(), None);
}
