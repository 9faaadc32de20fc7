//! The place of `sim` in a build without the feature: no value of these types exists.

use std::ops::Deref;
use std::sync::Arc;

use urxe_stack::driver::Engine;
use urxe_stack::time::Time;

use crate::aio::OperationError;
use crate::backend::Advance;
use crate::cq::WaitError;
use crate::waker_list::WakerList;

/// A node of a simulated network. It has the methods of the other backend, besides those below.
pub(crate) enum SimNode {}

/// The reason why virtual time does not advance.
pub(crate) enum Stalled {}

impl SimNode {
    pub(crate) fn progress(&self) -> bool {
        match *self {}
    }

    pub(crate) fn advance(&self, _: Time) -> Result<Advance, Stalled> {
        match *self {}
    }

    pub(crate) fn quiet_wakers(&self) -> Arc<WakerList> {
        match *self {}
    }

    pub(crate) fn wake_quiet(&self) {
        match *self {}
    }
}

impl Deref for SimNode {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        match *self {}
    }
}

impl From<Stalled> for WaitError {
    fn from(stalled: Stalled) -> Self {
        match stalled {}
    }
}

impl From<Stalled> for OperationError {
    fn from(stalled: Stalled) -> Self {
        match stalled {}
    }
}
