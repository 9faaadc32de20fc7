//! How an error of the stack becomes an error number.

use std::fmt::Display;

use rustix::io::Errno;
use urxe_stack::cma::CmaError;
use urxe_stack::cq::CqError;
use urxe_stack::device::ah::CreateAhError;
use urxe_stack::device::{CreateCqError, CreateQpError, DestroyQpError, ModifyError};
use urxe_stack::memory::RegMrError;
use urxe_stack::qp::work_request::PostError;

/// The result of a call: an error is the number that the C program gets.
pub type Result<T> = std::result::Result<T, Errno>;

/// An error of the stack.
pub trait StackError: Display {
    fn number(&self) -> i32;
}

macro_rules! stack_errors {
    ($($error:ty)*) => { $(
        impl StackError for $error {
            fn number(&self) -> i32 {
                self.errno()
            }
        }
    )* };
}

stack_errors! {
    CmaError CqError CreateAhError CreateCqError CreateQpError DestroyQpError ModifyError PostError
    RegMrError
}

/// Returns the number of an error, and logs its reason (`URXE_LOG=info`).
pub fn errno(error: impl StackError) -> Errno {
    let errno = Errno::from_raw_os_error(error.number());
    if errno != Errno::AGAIN {
        tracing::info!("{error}");
    }
    errno
}
