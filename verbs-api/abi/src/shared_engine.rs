//! One engine a device and process, shared by all contexts that the program opens on it.
//!
//! The sockets of an address can be bound once, and a program may open a device as often as it
//! likes. So the first context opens an engine, later ones share it, and the last one closes it.
//!
//! Asynchronous events arrive at the engine, and each is for the context that made the object; an
//! event of the port is for all of them. A [`Router`] takes them to the contexts' own queues, each
//! with its own descriptor. It may not do so where they arise, under locks of the core; there it
//! takes a note, and acts on it when the thread holds none: after each verb, and after each round
//! of the background thread.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use urxe_stack::cq::{AsyncEvents, EventObject, Wake};
use urxe_stack::device::Device;
use urxe_stack::device::counters::Counter;
use urxe_stack::driver::{AfterProgress, Engine, EngineConfig, Hooks};
use urxe_stack::link::LinkSpec;
use urxe_stack::sync::lock;
use urxe_stack::sys::fork::PerProcess;

use crate::cm::process::connections;
use crate::error::VerbError;
use crate::{environment, sysfs};

/// An engine and who gets its events.
pub struct SharedEngine {
    pub engine: Engine,
    pub router: Arc<Router>,
}

/// A process's engines, by what they were opened for. Those that a forked child inherited are no
/// use to it.
static ENGINES: PerProcess<Mutex<Engines>> = PerProcess::new(Mutex::default);

type Engines = Vec<(LinkSpec, Weak<SharedEngine>)>;

impl SharedEngine {
    /// The engine of `spec`, opened if nobody has it open.
    pub fn open(spec: &LinkSpec) -> Result<Arc<Self>, VerbError> {
        let mut engines = lock(ENGINES.get());
        let open = engines
            .iter()
            .find(|(other, _)| other == spec)
            .and_then(|(_, shared)| shared.upgrade());
        if let Some(shared) = open {
            return Ok(shared);
        }
        engines.retain(|(_, shared)| shared.strong_count() > 0);
        let router = Arc::new(Router::default());
        let hooks = Hooks {
            events: Some(Arc::clone(&router) as Arc<dyn Wake>),
            after_progress: Some(Arc::clone(&router) as Arc<dyn AfterProgress>),
        };
        let connections = Some(Arc::clone(connections()));
        let config = EngineConfig { hooks, connections, ..environment::engine_config()? };
        let engine = Engine::open(spec, config)?;
        sysfs::offer_counters();
        let is_first = router.source.set(Arc::downgrade(engine.device().events())).is_ok();
        debug_assert!(is_first, "a router is made for one engine");
        let shared = Arc::new(Self { engine, router });
        engines.push((spec.clone(), Arc::downgrade(&shared)));
        Ok(shared)
    }

    /// What a counter of the device of that name stands at, if it is open.
    pub fn counter(device: &[u8], counter: Counter) -> Option<u64> {
        let engines = lock(ENGINES.get());
        let named = engines.iter().filter(|(spec, _)| spec.name.as_str().as_bytes() == device);
        let mut open = named.filter_map(|(_, shared)| shared.upgrade());
        let value = open.next().map(|shared| shared.device().counters().value(counter));
        // Whoever held the last one meanwhile let go of it under the same lock, in `close`; this is
        // none.
        drop(engines);
        value
    }

    /// Lets go of it. The last one closes the sockets before anybody can open them anew.
    pub fn close(self: Arc<Self>) {
        let engines = lock(ENGINES.get());
        drop(self);
        drop(engines);
    }

    /// The stack's device.
    pub fn device(&self) -> &Device {
        self.engine.device()
    }

    /// To be called after each verb that may have made events.
    pub fn deliver_events(&self) {
        if self.router.pending.load(Ordering::Relaxed) {
            self.router.deliver();
        }
    }
}

/// Takes an engine's asynchronous events to the contexts.
#[derive(Default)]
pub struct Router {
    pending: AtomicBool,
    source: OnceLock<Weak<AsyncEvents>>,
    routes: Mutex<Routes>,
}

#[derive(Default)]
struct Routes {
    owners: HashMap<EventObject, Arc<AsyncEvents>>,
    contexts: Vec<Arc<AsyncEvents>>,
}

impl Router {
    /// A context that gets the events of the port.
    pub fn add_context(&self, context: &Arc<AsyncEvents>) {
        lock(&self.routes).contexts.push(Arc::clone(context));
    }

    /// The context goes, and with it everything that it owned.
    pub fn remove_context(&self, context: &Arc<AsyncEvents>) {
        let mut routes = lock(&self.routes);
        routes.contexts.retain(|other| !Arc::ptr_eq(other, context));
        routes.owners.retain(|_, owner| !Arc::ptr_eq(owner, context));
    }

    /// From now on events about `object` are `context`'s.
    pub fn set_owner(&self, object: EventObject, context: &Arc<AsyncEvents>) {
        lock(&self.routes).owners.insert(object, Arc::clone(context));
    }

    /// `object` is gone: no more events about it reach its context.
    pub fn remove_owner(&self, object: EventObject) {
        lock(&self.routes).owners.remove(&object);
    }

    fn deliver(&self) {
        while self.pending.swap(false, Ordering::AcqRel) {
            let Some(source) = self.source.get().and_then(Weak::upgrade) else { return };
            while let Some(event) = source.next_event() {
                let routes = lock(&self.routes);
                match event.object() {
                    Some(object) => {
                        routes.owners.get(&object).into_iter().for_each(|to| to.push(event))
                    }
                    None => routes.contexts.iter().for_each(|to| to.push(event)),
                }
                drop(routes);
                // It is the program's acknowledgement to the context's queue that counts.
                source.ack(&event);
            }
        }
    }
}

impl AfterProgress for Router {
    fn is_due(&self) -> bool {
        self.pending.load(Ordering::Relaxed)
    }

    fn act(&self) {
        self.deliver();
    }
}

impl Wake for Router {
    fn wake(&self) {
        self.pending.store(true, Ordering::Release);
    }
}
