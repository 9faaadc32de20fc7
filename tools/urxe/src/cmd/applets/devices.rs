//! The devices as the commands show and change them.

use urxe_stack::link::interface::interfaces;
use urxe_stack::link::{
    self, LinkError, LinkName, LinkSpec, OperState, Origin, ResolvedLink, Source, config,
};

use super::AppletError;
use crate::cmd::run;

/// A device of the list, with its number.
pub struct Device {
    pub index: usize,
    pub spec: LinkSpec,
    /// `None` if this machine has not got the address or interface now.
    pub link: Option<ResolvedLink>,
}

impl Device {
    pub fn name(&self) -> &str {
        self.spec.name.as_str()
    }

    /// Returns the node GUID with colons; zeros if the device cannot be opened now.
    pub fn guid(&self) -> String {
        self.link.as_ref().map(|link| link.node_guid).unwrap_or_default().to_string()
    }

    /// Returns the node GUID as sixteen digits.
    pub fn guid_digits(&self) -> String {
        self.guid().replace(':', "")
    }

    pub fn state(&self) -> OperState {
        self.link.as_ref().map_or(OperState::Disabled, |link| link.interface.state)
    }

    /// Returns the name and the index of the interface.
    pub fn netdev(&self) -> Option<(String, u32)> {
        match (&self.link, &self.spec.source) {
            (Some(link), _) => Some((link.interface.name.clone(), link.interface.index)),
            (None, Source::Interface(name)) => Some((name.clone(), 0)),
            (None, Source::Address(_)) => None,
        }
    }
}

/// Returns all devices.
pub fn all() -> Result<Vec<Device>, AppletError> {
    let links = link::configured()?.links;
    let device = |(index, spec): (usize, LinkSpec)| {
        let link = link::resolve(&spec).ok();
        Device { index, spec, link }
    };
    Ok(links.into_iter().enumerate().map(device).collect())
}

/// Adds a device to the user's list. Like the kernel, refuses a name or an interface that has a
/// device, and accepts an interface that has no address yet.
pub fn add(spec: &LinkSpec) -> Result<(), AppletError> {
    let configured = link::configured()?;
    let same = |other: &&LinkSpec| other.name == spec.name || other.source == spec.source;
    if configured.origin != Origin::BuiltIn
        && let Some(existing) = configured.links.iter().find(same)
    {
        let (given, existing) = (Box::new(spec.clone()), Box::new(existing.clone()));
        return Err(AppletError::Exists { given, existing });
    }
    match link::resolve(spec) {
        Ok(_) | Err(LinkError::NoAddress { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    changeable(&configured.origin)?;
    config::add(&config::file_path()?, spec)?;
    Ok(run::refresh_sysfs()?)
}

/// Deletes a device from the user's list.
pub fn remove(name: &LinkName) -> Result<(), AppletError> {
    changeable(&link::configured()?.origin)?;
    config::remove(&config::file_path()?, name)?;
    Ok(run::refresh_sysfs()?)
}

/// Deletes all devices from the user's list, as unloading `rdma_rxe` does.
pub fn remove_all() -> Result<(), AppletError> {
    let configured = link::configured()?;
    if let Origin::File(path) = &configured.origin {
        for spec in &configured.links {
            config::remove(path, &spec.name)?;
        }
        run::refresh_sysfs()?;
    }
    Ok(())
}

fn changeable(origin: &Origin) -> Result<(), AppletError> {
    if *origin == Origin::Environment { Err(AppletError::FixedList) } else { Ok(()) }
}

/// Returns whether the machine has this interface.
pub fn has_interface(name: &str) -> Result<bool, AppletError> {
    Ok(interfaces()?.iter().any(|interface| interface.name == name))
}
