//! Rules of the model that can be left out, one at a time: without any of them, the comparison must
//! fail.

use clap::ValueEnum;

/// A rule that the model forgets, to see that the comparison notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Forgets {
    ProtectionDomains,
    /// That a type 2 window is for the peer of the queue pair that bound it.
    WindowOwners,
    /// That a region grants some things and others not.
    Rights,
    /// That a shared receive queue tells when it runs low.
    Limits,
    Invalidation,
    Flushing,
    Draining,
    /// That reregistration moves a region.
    Places,
    /// That it gives it to another protection domain.
    Domains,
    /// That it grants other things.
    Grants,
    /// That it is refused under windows.
    BoundRegions,
    /// That a shared receive queue gets another size.
    Sizes,
    /// That it keeps what it holds then.
    Contents,
    /// That it gets no smaller than that.
    Holding,
    /// That its limit tells once.
    OneShot,
    /// That an armed completion queue tells once.
    OneEvent,
    /// That one armed for solicited messages keeps silent of others.
    Solicitation,
    /// But tells of errors.
    ErrorsTell,
    /// That what came before the arming is not told.
    Earlier,
    /// That who waits for any completion goes on doing so when he asks for solicited ones.
    Stronger,
    /// That what is in an XRC domain keeps it.
    Members,
    /// That who opens a file's domain again shares it.
    Files,
    /// That a target goes when it was destroyed as often as opened.
    Opens,
    /// That a message reaches the queues of its own XRC domain alone.
    Strangers,
    /// That each queue pair of a group gets a copy.
    Copies,
    /// That those of the sender's device do as well.
    Loopback,
    /// That datagrams with another Q_Key are counted.
    Violations,
}
