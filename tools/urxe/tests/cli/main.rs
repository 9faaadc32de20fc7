//! The `urxe` binary as people and scripts run it.

mod commands;
mod common;
mod decode;
mod link;
