//! The `urxe` binary as people and scripts run it. One test binary, as each links the whole stack.

mod commands;
mod common;
mod connections;
mod decode;
mod ibv_rc_pingpong;
mod link;
mod perf;
mod pingpong;
