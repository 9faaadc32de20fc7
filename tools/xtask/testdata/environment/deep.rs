//! A module below.

use std::env::var_os;

use std::env;

fn all() -> usize {
    env::vars().count() + usize::from(var_os("HOME").is_some())
}
