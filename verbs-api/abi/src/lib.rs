//! `liburxe.so`: the C ABI of libibverbs and librdmacm over the stack, for programs that were
//! compiled for the originals.
//!
//! `libibverbs.so.1` and `librdmacm.so.1` are symbolic links to this one library, which the loader
//! then maps once. A program calls it in two ways: by the exported symbols ([`exports`]), and by
//! inline functions of the header that call through tables in the objects (`ibv_context.ops`,
//! `verbs_context`, `ibv_qp_ex`, `ibv_cq_ex`), so those have to be laid out exactly ([`layout`]).
//!
//! ```text
//!   program --symbols--> exports --> a verb's file --> ffi (errors, panics) --> urxe-stack: Engine, Device
//!           --tables--------------^
//! ```
//!
//! | file | subject |
//! |---|---|
//! | [`exports`] | which symbols there are, each with its version |
//! | [`layout`] | the structures of `infiniband/verbs.h` |
//! | [`ffi`] | how a verb's result and a panic become a C result |
//! | [`error`] | why a verb was refused |
//! | [`devices`] | the list of devices |
//! | [`context`], [`context_objects`] | opening and closing, what a context owns |
//! | [`shared_engine`] | one engine a device and process, shared by its contexts; who gets its asynchronous events |
//! | [`attributes`], [`port`], [`gid`] | what a device and its port say of themselves |
//! | [`import`] | what another context of the process made |
//! | [`pd`], [`mr`], [`mw`], [`dm`], [`ah`], [`xrc`], [`channel`], [`cq`], [`cq_ex`], [`qp`], [`qp_attr`], [`qp_ex`], [`srq`], [`post`] | an object each, and its verbs |
//! | [`handle_registry`] | which of them are there, and what stands behind a pointer to one |
//! | [`events`] | asynchronous events |
//! | [`cm`] | librdmacm |
//! | [`rsocket`] | the C functions of its sockets |
//! | [`enums`], [`sysfs`] | what needs no device |
//! | [`environment`] | what the variables `URXE_*` ask for |
//! | [`load_check`] | what is looked for when the library is loaded |
//!
//! # Rules
//! - **Panics** do not cross the border. Each entry that does more than read or note something
//!   catches them: the verb answers EIO, the reason is on standard error, and the process lives on.
//!   In the others a panic would end the process, as in any `extern "C"` function, rather than
//!   unwind. That is for faults of this library alone; bad arguments are errors, never panics.
//! - **Threads** run only while a device is open, and none handles signals. The library installs no
//!   signal handler and no exit handler.
//! - **Pointers** that a program hands in are trusted as in the original: NULL is refused where the
//!   original refuses or tolerates it, objects that are not there (any more) are refused where that
//!   costs nothing that matters
//!   ([`handle_registry`]), anything else is taken for what the header says it is.
//!   That is what the SAFETY comments call *the ABI's contract*: a pointer to an object came from
//!   the verb that makes such objects, which has not been destroyed yet, and a pointer to a
//!   structure of arguments points to one that no other thread writes during the call.
//! - **Objects** are allocated here and freed by the verb that destroys them. Objects that a
//!   program leaves behind when it closes the device end with it; their few bytes stay allocated,
//!   since the program may still look at them.

mod ah;
mod attributes;
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
mod xrc;
