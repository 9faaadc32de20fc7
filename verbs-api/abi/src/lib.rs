//! `liburxe.so`: the C ABI of libibverbs and librdmacm over the stack, for programs that were
//! compiled for the originals.
//!
//! `libibverbs.so.1` and `librdmacm.so.1` are symbolic links to this one library, so the loader
//! maps one copy. A program calls the library in two ways:
//!
//! - by the exported symbols ([`exports`]);
//! - by inline functions of the header, which call through tables in the objects
//!   (`ibv_context.ops`, `verbs_context`, `ibv_qp_ex`, `ibv_cq_ex`). The layout of these structures
//!   must be exact ([`layout`]).
//!
//! ```text
//!   program --symbols--> exports --> a verb's file --> ffi (errors, panics) --> urxe-stack
//!           --tables--------------^
//! ```
//!
//! | file | subject |
//! |---|---|
//! | [`exports`] | symbols and their versions |
//! | [`layout`] | the structures of `infiniband/verbs.h` |
//! | [`ffi`] | conversion of results and panics to C results |
//! | [`error`] | errors of verbs |
//! | [`devices`] | the list of devices |
//! | [`context`], [`context_objects`] | opening and closing a device; the objects of a context |
//! | [`shared_engine`] | the engine of a device; delivery of its asynchronous events |
//! | [`attributes`], [`port`], [`gid`] | attributes of a device and its port |
//! | [`import`] | importing objects of another context |
//! | [`pd`], [`mr`], [`buf`], [`mw`], [`dm`], [`ah`], [`xrc`] | domains, memory, address handles |
//! | [`channel`], [`cq`], [`cq_ex`] | completion channels, completion queues |
//! | [`qp`], [`qp_attr`], [`qp_ex`], [`srq`], [`post`] | queue pairs, shared queues, requests |
//! | [`handle_registry`] | the objects behind the pointers of programs |
//! | [`events`] | asynchronous events |
//! | [`cm`] | librdmacm |
//! | [`rsocket`] | the C functions of rsockets |
//! | [`enums`], [`sysfs`] | functions that need no device |
//! | [`environment`] | the variables `URXE_*` |
//! | [`load_check`] | the check when the library is loaded |
//! | [`usage`] | notes for `urxe run` |
//!
//! A new verb begins with a row in `exports/verbs.rs`. An inline verb of the header calls through a
//! table instead, and begins in `tables` of [`context`].
//!
//! # Rules
//! - **Panics** must not unwind into C. Each entry point that does more than read or write a field
//!   catches panics: the verb fails with EIO, the reason is on standard error, and the process
//!   continues. In the other entry points a panic aborts the process, as in any `extern "C"`
//!   function. Only a bug of this library panics; bad arguments are errors.
//! - **Threads** run only while a device is open, and none handles signals. The library installs no
//!   signal handler. Its only exit handler writes the rest of a capture.
//! - **Pointers** from a program are trusted as in the original library. NULL is refused where the
//!   original refuses or tolerates NULL. Destroyed objects are refused outside the data path
//!   ([`handle_registry`]). The SAFETY comments call the rest *the ABI's contract*: a pointer to an
//!   object came from the verb that creates such objects, and the object is not destroyed yet; a
//!   pointer to arguments points to a structure that no other thread writes during the call.
//! - **Objects** are allocated here and freed by the verb that destroys them. Closing a device
//!   destroys the objects that are left. Their structures stay allocated, because the program may
//!   still read them.

mod ah;
mod attributes;
mod buf;
mod channel;
mod cm;
mod context;
mod context_objects;
mod cq;
mod cq_ex;
mod devices;
mod dm;
mod enums;
mod environment;
mod error;
mod events;
mod exports;
mod ffi;
mod gid;
mod handle_registry;
mod import;
mod layout;
mod load_check;
mod mr;
mod mw;
mod pd;
mod port;
mod post;
mod qp;
mod qp_attr;
mod qp_ex;
mod rsocket;
mod shared_engine;
mod srq;
mod sysfs;
mod usage;
mod xrc;
