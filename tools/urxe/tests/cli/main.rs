//! Tests that run the `urxe` binary. They form one test binary, because each test binary links the
//! whole stack.

mod applets;
mod commands;
mod common;
mod completions;
mod connections;
mod decode;
mod devices;
mod ibv_rc_pingpong;
mod link;
mod perf;
mod pingpong;
