//! Compares the structures with a C compiler's layout of the installed headers (Debian's
//! `libibverbs-dev` and `librdmacm-dev`).

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::check::{AARCH64, ALL, X86_64};

/// A structure, its size, and the offsets of its fields.
type Layout = (&'static str, usize, &'static [(&'static str, usize)]);

/// Returns the header's name of a field that has another name here.
fn c_name(structure: &str, field: &str) -> String {
    match (structure, field) {
        ("ibv_odp_caps", _) | (_, "rx_hash_conf") => field.to_owned(),
        _ => field.trim_end_matches('_').to_owned(),
    }
}

/// Returns a C program that prints a line for each structure and each field.
fn program(layouts: &[Layout]) -> String {
    let mut text = String::from(
        "#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/verbs.h>\n\
         #include <rdma/rdma_cma.h>\nint main(void) {\n",
    );
    for (structure, _, fields) in layouts {
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

/// Compiles the program by `compiler`, runs it by `runner`, and compares its output.
fn compare(compiler: &str, runner: &[&str], of_architecture: &[Layout]) {
    let layouts: Vec<Layout> = [of_architecture, ALL].concat();
    let folder = tempfile::tempdir().unwrap();
    let (source, binary) = (folder.path().join("layout.c"), folder.path().join("layout"));
    fs::write(&source, program(&layouts)).unwrap();
    // A cross compiler does not look for headers in the system's folder.
    for headers in ["infiniband", "rdma"] {
        let installed = Path::new("/usr/include").join(headers);
        std::os::unix::fs::symlink(installed, folder.path().join(headers)).unwrap();
    }
    let mut compile = Command::new(compiler);
    compile.arg("-static").arg("-I").arg(folder.path()).arg(&source).arg("-o").arg(&binary);
    let compiled = compile.output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let mut words = runner.iter().map(AsRef::as_ref).chain([binary.as_os_str()]);
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let mut lines = said.lines();
    for (structure, size, fields) in layouts {
        // rdma-core 45 appended a function to queue pairs.
        let is_earlier =
            structure == "ibv_qp_ex" && said.contains(&format!("ibv_qp_ex {}\n", size - 8));
        let size = if is_earlier { size - 8 } else { size };
        assert_eq!(lines.next(), Some(format!("{structure} {size}").as_str()));
        for (field, offset) in fields {
            assert_eq!(lines.next(), Some(format!("{structure}.{field} {offset}").as_str()));
        }
    }
    assert_eq!(lines.next(), None);
}

#[test]
#[ignore = "needs gcc and libibverbs-dev: cargo xtask programs installs them"]
fn a_c_compiler_lays_them_out_alike() {
    let own = if cfg!(target_arch = "aarch64") { AARCH64 } else { X86_64 };
    compare("gcc", &[], own);
}

#[test]
#[ignore = "needs a cross compiler and qemu-user-static: cargo xtask arm installs them"]
fn a_c_compiler_for_aarch64_lays_them_out_alike() {
    compare("aarch64-linux-gnu-gcc", &["qemu-aarch64-static"], AARCH64);
}
