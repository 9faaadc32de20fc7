//! What a slot holds beside what its key stands for: things that only verbs and work requests on
//! the object itself look at.

use super::pages::PageList;
use super::{Buffer, DmId, MwType, PdId};
use urxe_types::sync::Arc;
use urxe_wire::Qpn;

/// See the module.
pub(super) enum Object {
    Vacant,
    Region(RegionObject),
    Fast(Box<FastObject>),
    Window(WindowObject),
}

/// An ordinary region. While it exists, its slot is published.
#[derive(Default)]
pub(super) struct RegionObject {
    /// Memory that stays as long as the region.
    pub(super) kept: Option<Arc<Buffer>>,
    /// The device memory that it registers.
    pub(super) dm: Option<DmId>,
}

/// A fast-registration region. Its slot is published while it is valid.
pub(super) struct FastObject {
    pub(super) pd: PdId,
    /// How its key ends, whether or not it is valid.
    pub(super) low_byte: u8,
    pub(super) valid: bool,
    /// What its key stands for while it is valid.
    pub(super) active: PageList,
    /// What the next registration will make active.
    pub(super) staged: PageList,
}

/// A memory window. Its slot is published while it is bound.
pub(super) struct WindowObject {
    pub(super) kind: MwType,
    pub(super) pd: PdId,
    /// How its key ends, whether or not it is bound.
    pub(super) low_byte: u8,
    /// Whether binds name it however its key ended when they were posted.
    pub(super) by_handle: bool,
    pub(super) bound: Option<Bound>,
}

/// What a window is bound to.
#[derive(Clone, Copy)]
pub(super) struct Bound {
    /// The region's slot.
    pub(super) region: u32,
    /// The queue pair that bound a type 2 window.
    pub(super) qpn: Option<Qpn>,
}
