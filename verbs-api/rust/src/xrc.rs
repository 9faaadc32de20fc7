//! Extended reliable connections (XRC): one connection reaches every shared receive queue of a
//! domain.
//!
//! The sending end is a [`QueuePair`](crate::QueuePair) of type
//! [`XrcSend`](crate::QpType::XrcSend). Each of its requests names [a shared receive
//! queue](crate::SendRequest::to_srq) of the peer. The receiving end is an [`XrcTarget`] of an
//! [`XrcDomain`].

use std::fmt;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use urxe_stack::device::{CreateQpError, ModifyError, OpenQpError, QpHandle};
use urxe_stack::driver::xrcd_lock::claim_xrcd;
use urxe_stack::qp::attr::QpType;
use urxe_stack::srq::xrcd::{Inode, OpenXrcdError, Xrcd, XrcdFlags};
use urxe_wire::{Psn, Qpn};

use crate::device::Device;
use crate::endpoint::QpEndpoint;
use crate::qp::{ConnectOptions, End, end_calls};

/// An XRC domain (`struct ibv_xrcd`), which groups targets and shared receive queues.
///
/// A message that arrives at a target of the domain may use every shared receive queue of the
/// domain. Cloning is cheap. The domain is closed when the last clone, target and shared receive
/// queue of it are dropped.
///
/// ```
/// use urxe::sim::Fabric;
/// use urxe::{Access, ConnectOptions, Data, OpenQpError, QpType, Qpn, RecvRequest, SendRequest};
/// use urxe::{XrcDomain, XrcTarget};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let fabric = Fabric::new(1);
/// let (here, there) = (fabric.device([10, 0, 0, 1])?, fabric.device([10, 0, 0, 2])?);
///
/// // The receiving side: a domain, a target and two shared receive queues. Each has its own
/// // protection domain and completion queue.
/// let domain: XrcDomain = there.new_xrc_domain()?;
/// let target: XrcTarget = domain.target()?;
/// let mut queues = Vec::new();
/// for _ in 0..2 {
///     let (pd, cq) = (there.alloc_pd()?, there.create_cq(8)?);
///     let region = pd.allocate(64, Access::LOCAL_WRITE)?;
///     let srq = pd.shared_receive_queue(8).xrc(&domain, &cq).create()?;
///     srq.post_recv(&RecvRequest::new(region.slice(..)?))?;
///     queues.push((srq, cq, region));
/// }
///
/// // The sending side: one connection reaches both queues.
/// let (pd, cq) = (here.alloc_pd()?, here.create_cq(8)?);
/// let qp = pd.queue_pair(&cq).qp_type(QpType::XrcSend).create()?;
/// qp.connect(&target.endpoint(), &ConnectOptions::default())?;
/// target.connect(&qp.endpoint(), &ConnectOptions::default())?;
/// for (srq, their_cq, region) in &queues {
///     qp.post_send(&SendRequest::send(Data::inline(b"hello")).to_srq(srq.id()).signaled())?;
///     assert_eq!(their_cq.wait_one(None)?.qp_num, target.qpn());
///     assert_eq!(region.read_vec(0, 5)?, b"hello");
/// }
///
/// // Another part of the program opens the target by its number.
/// let again = domain.open_target(target.qpn())?;
/// assert_eq!(again.qpn(), target.qpn());
/// let unknown = Qpn::new(target.qpn().value() ^ 1).unwrap();
/// let error: OpenQpError = domain.open_target(unknown).unwrap_err();
/// assert_eq!(error, OpenQpError::NoQp { given: unknown });
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct XrcDomain {
    inner: Arc<Inner>,
}

struct Inner {
    device: Device,
    xrcd: Arc<Xrcd>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.device.destroy("what is in it keeps it open", |core| core.close_xrcd(&self.xrcd));
    }
}

impl Device {
    /// Creates an XRC domain that no other handle can open (`ibv_open_xrcd` without a file).
    ///
    /// # Errors
    /// Fails with [`OpenXrcdError::NoneLeft`] if the device has no free XRC domain.
    pub fn new_xrc_domain(&self) -> Result<XrcDomain, OpenXrcdError> {
        self.open_xrcd(None, XrcdFlags::CREATE)
    }

    /// Opens the XRC domain of a file (`ibv_open_xrcd`).
    ///
    /// All callers in this process that open the same file on this device share one domain. The
    /// file's contents are not read, and the file may be closed at once.
    ///
    /// ```
    /// use urxe::{OpenXrcdError, XrcdFlags, sim::Fabric};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let device = Fabric::new(1).device([10, 0, 0, 1])?;
    /// let file = std::fs::File::open(std::env::current_exe()?)?;
    /// let error: OpenXrcdError = device.open_xrc_domain(&file, XrcdFlags::empty()).unwrap_err();
    /// assert!(matches!(error, OpenXrcdError::NotThere { .. }));
    /// let domain = device.open_xrc_domain(&file, XrcdFlags::CREATE)?;
    /// let again = device.open_xrc_domain(&file, XrcdFlags::empty())?;
    /// assert!(domain.is_same(&again));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails with [`OpenXrcdError`] in these cases:
    /// * The file has no domain, and `flags` lacks [`XrcdFlags::CREATE`].
    /// * The file has a domain, and `flags` has [`XrcdFlags::EXCLUSIVE`].
    /// * Another process has opened the domain.
    pub fn open_xrc_domain(
        &self,
        file: impl AsFd,
        flags: XrcdFlags,
    ) -> Result<XrcDomain, OpenXrcdError> {
        let metadata = File::from(file.as_fd().try_clone_to_owned()?).metadata()?;
        self.open_xrcd(Some(Inode { device: metadata.dev(), number: metadata.ino() }), flags)
    }

    fn open_xrcd(
        &self,
        inode: Option<Inode>,
        flags: XrcdFlags,
    ) -> Result<XrcDomain, OpenXrcdError> {
        let gid = self.core().gids().first().copied().unwrap_or_default();
        let xrcd = self.core().open_xrcd(inode, flags, |inode| claim_xrcd(gid, inode))?;
        Ok(XrcDomain { inner: Arc::new(Inner { device: self.clone(), xrcd }) })
    }
}

impl XrcDomain {
    pub(crate) fn core(&self) -> &Arc<Xrcd> {
        &self.inner.xrcd
    }

    /// Returns the device of the domain.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// Returns whether both handles denote the same domain.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner.xrcd, &other.inner.xrcd)
    }

    /// Creates the receiving end of a connection, in RESET (`ibv_create_qp_ex` with
    /// `IBV_QPT_XRC_RECV`).
    ///
    /// # Errors
    /// Fails with [`CreateQpError::NoneLeft`] if the device has no free queue pair.
    pub fn target(&self) -> Result<XrcTarget, CreateQpError> {
        let handle = self.device().core().create_xrc_target(&self.inner.xrcd)?;
        Ok(XrcTarget::new(self, handle))
    }

    /// Opens a receiving end that was created through another handle of this domain
    /// (`ibv_open_qp`). The receiving end is destroyed when its last handle is dropped.
    ///
    /// # Errors
    /// Fails with [`OpenQpError`] if the domain has no such receiving end.
    pub fn open_target(&self, qpn: Qpn) -> Result<XrcTarget, OpenQpError> {
        let handle = self.device().core().open_xrc_target(&self.inner.xrcd, qpn)?;
        Ok(XrcTarget::new(self, handle))
    }
}

impl fmt::Debug for XrcDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut domain = f.debug_struct("XrcDomain");
        domain.field("device", &self.inner.device.name());
        domain.field("file", &self.inner.xrcd.inode()).finish_non_exhaustive()
    }
}

/// The receiving end of an XRC connection.
///
/// The target has no receive queue of its own: messages use the shared receive queues of its
/// domain. Dropping the target destroys it, unless it is [opened](XrcDomain::open_target)
/// elsewhere.
pub struct XrcTarget {
    domain: XrcDomain,
    handle: QpHandle,
    psn: Psn,
}

impl XrcTarget {
    fn new(domain: &XrcDomain, handle: QpHandle) -> Self {
        Self { domain: domain.clone(), handle, psn: domain.device().core().random_psn() }
    }

    fn end(&self) -> End<'_> {
        let device = self.domain.device();
        let sgid_index = device.default_gid_index();
        End { device, handle: self.handle, qp_type: QpType::XrcRecv, psn: self.psn, sgid_index }
    }

    /// Returns the domain of the target.
    #[must_use]
    pub fn domain(&self) -> &XrcDomain {
        &self.domain
    }

    /// Connects to `peer`, a queue pair of type [`XrcSend`](QpType::XrcSend).
    ///
    /// # Errors
    /// Fails as [`QueuePair::connect`](crate::QueuePair::connect) does.
    pub fn connect(&self, peer: &QpEndpoint, options: &ConnectOptions) -> Result<(), ModifyError> {
        self.end().connect(peer, options)
    }
}

impl Drop for XrcTarget {
    fn drop(&mut self) {
        self.end().destroy("as often destroyed as opened");
    }
}

end_calls!(XrcTarget);
