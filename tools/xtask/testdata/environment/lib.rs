//! Reads variables by functions that the check finds.

mod deep;

use std::env;

fn program() -> *mut i8 {
    unsafe { libc::getenv(c"HOME".as_ptr()) }
}

fn arguments() -> env::Args {
    env::args()
}

#[cfg(test)]
mod tests {
    fn seed() -> Option<String> {
        std::env::var("SEED").ok()
    }
}
