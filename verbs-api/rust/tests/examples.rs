//! Runs every example. A new example must be listed here.

#[path = "examples/processes.rs"]
mod processes;

use std::path::Path;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

macro_rules! examples {
    ($($name:ident $path:literal)*; $($pair:ident $pair_path:literal)*) => {
        $(
            #[path = $path]
            mod $name;
        )*

        $(
            #[path = $pair_path]
            #[allow(dead_code, reason = "the tests call `run`")]
            mod $pair;
        )*

        /// An example returns an error if it finds a fault.
        mod run {
            $(
                #[test]
                fn $name() {
                    super::$name::main().unwrap();
                }
            )*
        }

        const NAMES: &[&str] = &[$(stringify!($name),)* $(stringify!($pair)),*];
    };
}

examples! {
    async_rpc "../examples/async_rpc.rs"
    async_store "../examples/async_store.rs"
    atomics_counter "../examples/atomics_counter.rs"
    cm_demo "../examples/cm_demo.rs"
    cm_echo "../examples/cm_echo.rs"
    cm_simulation "../examples/cm_simulation.rs"
    demo "../examples/demo.rs"
    drain "../examples/drain.rs"
    fast_registration "../examples/fast_registration.rs"
    krping "../examples/krping.rs"
    lossy_simulation "../examples/lossy_simulation.rs"
    many_clients "../examples/many_clients.rs"
    multicast "../examples/multicast.rs"
    one_sided "../examples/one_sided.rs"
    persistent_log "../examples/persistent_log.rs"
    ping_pong "../examples/ping_pong.rs"
    stream_http "../examples/stream_http.rs"
    uc_one_sided "../examples/uc_one_sided.rs"
    ud_echo "../examples/ud_echo.rs"
    xrc_window "../examples/xrc_window.rs"
    ;
    blocking_echo "../examples/blocking_echo.rs"
    rpc "../examples/rpc.rs"
    stream_proxy "../examples/stream_proxy.rs"
}

#[test]
fn all_are_tested() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut names: Vec<_> = folder
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    names.sort();
    let mut listed = NAMES.to_vec();
    listed.sort_unstable();
    assert_eq!(names, listed);
}
