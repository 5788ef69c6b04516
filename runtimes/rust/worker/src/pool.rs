//! Threads that run calls. As many as there are processors take calls one after the other; more join, and stay, only while
//! calls wait behind others that take their time. Waking a thread costs more than a short call.

use crate::wire::lock;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

type Task = Box<dyn FnOnce() + Send>;

pub struct Pool {
    shared: Arc<Shared>,
    most: usize,
    processors: usize,
}

struct Shared {
    queue: Mutex<Queue>,
    added: Condvar,
}

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Task>,
    threads: usize,
    /// Threads that sleep and were not woken yet.
    idle: usize,
    /// Threads that were woken and do not run yet.
    called: usize,
}

impl Pool {
    pub fn new(most: usize) -> Self {
        let processors = thread::available_parallelism().map_or(1, |count| count.get());
        Pool { shared: Arc::new(Shared { queue: Mutex::default(), added: Condvar::new() }), most, processors }
    }

    /// Adds a call; `wake` sees to it that it runs.
    pub fn add(&self, task: Task) {
        lock(&self.shared.queue).tasks.push_back(task);
    }

    /// Wakes threads for the calls that were added. Called once for all calls that were read together.
    pub fn wake(&self) {
        let mut queue = lock(&self.shared.queue);
        let busy = queue.threads - queue.idle;
        for _ in busy..self.processors.min(busy + queue.tasks.len()) {
            self.add_thread(&mut queue);
        }
    }

    /// True while a call waits for a thread.
    pub fn is_behind(&self) -> bool {
        !lock(&self.shared.queue).tasks.is_empty()
    }

    /// Puts as many threads on the calls that wait as are busy, or fewer when fewer wait.
    pub fn grow(&self) {
        let mut queue = lock(&self.shared.queue);
        for _ in 0..queue.tasks.len().min(queue.threads - queue.idle) {
            self.add_thread(&mut queue);
        }
    }

    fn add_thread(&self, queue: &mut Queue) {
        if queue.idle > 0 {
            queue.idle -= 1;
            queue.called += 1;
            self.shared.added.notify_one();
        } else if queue.threads < self.most {
            let shared = self.shared.clone();
            if thread::Builder::new().name("call".into()).spawn(move || shared.work()).is_ok() {
                queue.threads += 1;
            }
        }
    }
}

impl Shared {
    fn work(&self) {
        let mut queue = lock(&self.queue);
        loop {
            match queue.tasks.pop_front() {
                Some(task) => {
                    drop(queue);
                    task();
                    queue = lock(&self.queue);
                }
                None => {
                    queue.idle += 1;
                    while queue.called == 0 {
                        queue = self.added.wait(queue).unwrap_or_else(|poisoned| poisoned.into_inner());
                    }
                    queue.called -= 1;
                }
            }
        }
    }
}
