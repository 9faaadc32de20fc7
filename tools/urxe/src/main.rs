//! `urxe`: the command-line interface. Its code is the library `urxe_tools`.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    urxe_tools::main()
}
