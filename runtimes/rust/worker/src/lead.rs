//! Which thread reads. One thread leads: it reads calls, and runs quick ones itself, because to wake another thread costs
//! more than such a call. Before a slow one it lets another thread lead; of one that turns out to be slow a watcher takes
//! the lead away. Every call runs on the thread that read it, so none waits behind another for long.

use crate::wire::lock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread::{self, Thread};
use std::time::Duration;

/// A step of the leader that takes longer than one of these, and less than two, costs it the lead.
const WATCH_INTERVAL: Duration = Duration::from_millis(1);
/// Calls are quick while they take less on average, in which the newest counts as one of so many, and no call more than a
/// slow one: a few may be slow only because the processor was somebody else's meanwhile.
const QUICK_NS: i64 = 25_000;
const SLOW_NS: i64 = CALLS_OF_AVERAGE * QUICK_NS;
const CALLS_OF_AVERAGE: i64 = 16;

pub struct Leadership {
    /// Number of the leader's step. Even while it waits for frames, or when nobody leads: then there is nothing to take
    /// away. It only grows, so nobody takes an old step for the present one.
    step: AtomicU64,
    seats: Mutex<Seats>,
    vacated: Condvar,
    /// Threads at most: one for each call that may be open, and one that reads.
    most: usize,
    /// The thread that watches, once it began.
    watcher: Mutex<Option<Thread>>,
    is_watched: AtomicBool,
    average_ns: AtomicI64,
}

#[derive(Default)]
struct Seats {
    is_vacant: bool,
    threads: usize,
    /// Threads that wait for the lead.
    waiting: usize,
}

impl Leadership {
    pub fn new(most: usize) -> Self {
        Leadership {
            step: AtomicU64::new(0),
            seats: Mutex::default(),
            vacated: Condvar::new(),
            most,
            watcher: Mutex::default(),
            // It looks when it begins.
            is_watched: AtomicBool::new(true),
            average_ns: AtomicI64::new(0),
        }
    }

    /// Lets another thread lead: one that waits, or a new one.
    ///
    /// @param begin - starts a thread that calls `wait`; false when it cannot
    pub fn vacate(&self, begin: impl FnOnce() -> bool) {
        let mut seats = lock(&self.seats);
        seats.is_vacant = true;
        if seats.waiting > 0 {
            self.vacated.notify_one();
        } else if seats.threads < self.most && begin() {
            seats.threads += 1;
        }
        // Otherwise the next thread whose call ends comes and takes it.
    }

    /// Waits until nobody leads.
    pub fn wait(&self) -> Lead<'_> {
        let mut seats = lock(&self.seats);
        seats.waiting += 1;
        while !seats.is_vacant {
            seats = self.vacated.wait(seats).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        seats.waiting -= 1;
        seats.is_vacant = false;
        drop(seats);
        let mut lead = Lead { of: self, step: 0, is_held: true };
        lead.begin();
        lead
    }

    /// True while calls are quick.
    pub fn is_quick(&self) -> bool {
        self.average_ns.load(Ordering::Relaxed) < QUICK_NS
    }

    /// Learns what a call took.
    pub fn learn(&self, took: Duration) {
        let took = SLOW_NS.min(took.as_nanos() as i64);
        // Of two threads at once one may be forgotten.
        let average = self.average_ns.load(Ordering::Relaxed);
        self.average_ns.store(average + (took - average) / CALLS_OF_AVERAGE, Ordering::Relaxed);
    }

    /// Takes the lead away from a thread that is stuck in one step; looks while a thread leads, and once more.
    pub fn watch(&self, begin: impl Fn() -> bool) -> ! {
        *lock(&self.watcher) = Some(thread::current());
        let mut seen = 0;
        loop {
            thread::park_timeout(WATCH_INTERVAL);
            let step = self.step.load(Ordering::SeqCst);
            if step % 2 == 0 {
                // To be woken for the next bunch of calls costs as much as one more look, and for rare calls there are no more.
                self.sleep(step);
            } else if step != seen {
                seen = step;
            } else if self.step.compare_exchange(step, step + 1, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                // What is behind it may be as slow.
                if self.is_quick() {
                    self.average_ns.store(2 * QUICK_NS, Ordering::Relaxed);
                }
                self.vacate(&begin);
            }
        }
    }

    fn sleep(&self, seen: u64) {
        self.is_watched.store(false, Ordering::SeqCst);
        // A leader that began before this store has not woken anybody.
        while self.step.load(Ordering::SeqCst) == seen && !self.is_watched.load(Ordering::SeqCst) {
            thread::park();
        }
        self.is_watched.store(true, Ordering::SeqCst);
    }
}

/// What a thread knows about its lead. Each step may find that it was taken away.
pub struct Lead<'a> {
    of: &'a Leadership,
    step: u64,
    is_held: bool,
}

impl Lead<'_> {
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Something begins after a wait.
    pub fn begin(&mut self) {
        self.step = self.of.step.load(Ordering::SeqCst) + 1;
        self.of.step.store(self.step, Ordering::SeqCst);
        if !self.of.is_watched.load(Ordering::SeqCst) {
            self.of.is_watched.store(true, Ordering::SeqCst);
            if let Some(watcher) = &*lock(&self.of.watcher) {
                watcher.unpark();
            }
        }
    }

    /// The next thing begins. False when the lead is another thread's.
    pub fn advance(&mut self) -> bool {
        self.go(2)
    }

    /// Nothing is done any more until `begin`. False when the lead is another thread's.
    pub fn rest(&mut self) -> bool {
        self.go(1)
    }

    /// Lets another thread lead, if this one still does.
    pub fn pass_on(&mut self, begin: impl FnOnce() -> bool) {
        if self.rest() {
            self.is_held = false;
            self.of.vacate(begin);
        }
    }

    fn go(&mut self, steps: u64) -> bool {
        let next = self.step + steps;
        self.is_held = self.is_held
            && self.of.step.compare_exchange(self.step, next, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        self.step = next;
        self.is_held
    }
}
