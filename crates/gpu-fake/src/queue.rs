//! Streams: threads that take one piece of work after the other, each with a clock of its own that
//! counts what the work would take on a GPU.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex};

use crate::machine::{lock, machine};

/// Work in a stream: what it would take in seconds, or the error that kills the context.
pub(crate) type Act = Box<dyn FnOnce(&mut f64) -> Result<f64, i32> + Send>;

pub(crate) struct Queue {
    pub(crate) gpu: usize,
    work: Sender<Act>,
    pending: Arc<AtomicUsize>,
    idle: Arc<(Mutex<()>, Condvar)>,
}

/// A point in a queue.
#[derive(Default)]
pub(crate) struct Mark {
    time: Mutex<Option<f64>>,
    passed: Condvar,
}

impl Queue {
    pub(crate) fn new(gpu: usize) -> Self {
        let (work, taken) = channel::<Act>();
        let pending = Arc::new(AtomicUsize::new(0));
        let idle = Arc::new((Mutex::new(()), Condvar::new()));
        let (left, signal) = (Arc::clone(&pending), Arc::clone(&idle));
        std::thread::spawn(move || {
            let mut clock = 0.0;
            for act in taken {
                // After an error the context is dead, and its work is dropped.
                if machine().alive(gpu).is_ok() {
                    match act(&mut clock) {
                        Ok(seconds) => clock += seconds,
                        Err(code) => machine().kill(gpu, code),
                    }
                }
                let guard = lock(&signal.0);
                left.fetch_sub(1, Ordering::SeqCst);
                drop(guard);
                signal.1.notify_all();
            }
        });
        Self { gpu, work, pending, idle }
    }

    pub(crate) fn push(&self, act: Act) -> Result<(), i32> {
        self.pending.fetch_add(1, Ordering::SeqCst);
        self.work.send(act).map_err(|_| crate::machine::code::INVALID_HANDLE)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.pending.load(Ordering::SeqCst) == 0
    }

    /// Waits until all work is done; for ever if it hangs, as the real call does.
    pub(crate) fn drain(&self) {
        let mut guard = lock(&self.idle.0);
        while !self.is_idle() {
            guard = self.idle.1.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}

impl Mark {
    pub(crate) fn pass(&self, time: f64) {
        *lock(&self.time) = Some(time);
        self.passed.notify_all();
    }

    pub(crate) fn clear(&self) {
        *lock(&self.time) = None;
    }

    pub(crate) fn time(&self) -> Option<f64> {
        *lock(&self.time)
    }

    /// Waits until the point has passed.
    pub(crate) fn wait(&self) -> f64 {
        let mut guard = lock(&self.time);
        loop {
            if let Some(time) = *guard {
                return time;
            }
            guard = self.passed.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}
