//! One engine for each device and process, shared by all contexts that the program opens on the
//! device.
//!
//! The sockets of an address can be bound only once, and a program may open a device several times.
//! The first context opens the engine, later contexts share the engine, and the last context closes
//! it.
//!
//! The engine queues asynchronous events. An event about an object is for the context that made the
//! object; a port event is for all contexts. A [`Router`] moves the events to the queues of the
//! contexts, which have a descriptor each. The core reports events while it holds locks, so the
//! router only sets a flag there. It moves the events when the thread holds no lock: after each
//! verb, and after each round of the background thread.

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
use crate::{environment, sysfs, usage};

/// An engine and the router of its events.
pub struct SharedEngine {
    pub engine: Engine,
    pub router: Arc<Router>,
}

/// The engines of the process, by link specification. Engines that a forked child inherited are not
/// used.
static ENGINES: PerProcess<Mutex<Engines>> = PerProcess::new(Mutex::default);

type Engines = Vec<(LinkSpec, Weak<SharedEngine>)>;

impl SharedEngine {
    /// Returns the engine of `spec`, and opens the engine if no context has it open.
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
        usage::OPENED.note();
        sysfs::offer_counters();
        let is_first = router.source.set(Arc::downgrade(engine.device().events())).is_ok();
        debug_assert!(is_first, "a router is made for one engine");
        let shared = Arc::new(Self { engine, router });
        engines.push((spec.clone(), Arc::downgrade(&shared)));
        Ok(shared)
    }

    /// Returns the value of a counter, if the process has the device of that name open.
    pub fn counter(device: &[u8], counter: Counter) -> Option<u64> {
        let engines = lock(ENGINES.get());
        let named = engines.iter().filter(|(spec, _)| spec.name.as_str().as_bytes() == device);
        let mut open = named.filter_map(|(_, shared)| shared.upgrade());
        let value = open.next().map(|shared| shared.device().counters().value(counter));
        // The last owner may have dropped the engine in the meantime. That happens under the same
        // lock, in `close`, so this reference is not the last.
        drop(engines);
        value
    }

    /// Releases the engine. The last release closes the sockets before another context can open
    /// them again.
    pub fn close(self: Arc<Self>) {
        let engines = lock(ENGINES.get());
        drop(self);
        drop(engines);
    }

    /// Returns the device of the stack.
    pub fn device(&self) -> &Device {
        self.engine.device()
    }

    /// Moves events to their contexts. Every verb that may cause events must call this function at
    /// its end.
    pub fn deliver_events(&self) {
        if self.router.pending.load(Ordering::Relaxed) {
            self.router.deliver();
        }
    }
}

/// Moves the asynchronous events of an engine to the contexts.
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
    /// Adds a context that gets port events.
    pub fn add_context(&self, context: &Arc<AsyncEvents>) {
        lock(&self.routes).contexts.push(Arc::clone(context));
    }

    /// Removes a context and the ownership of its objects.
    pub fn remove_context(&self, context: &Arc<AsyncEvents>) {
        let mut routes = lock(&self.routes);
        routes.contexts.retain(|other| !Arc::ptr_eq(other, context));
        routes.owners.retain(|_, owner| !Arc::ptr_eq(owner, context));
    }

    /// Sets the context that gets events about `object`.
    pub fn set_owner(&self, object: EventObject, context: &Arc<AsyncEvents>) {
        lock(&self.routes).owners.insert(object, Arc::clone(context));
    }

    /// Stops events about `object`, which is destroyed.
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
                // Only the program's acknowledgement to the queue of the context counts.
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
