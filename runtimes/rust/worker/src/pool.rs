//! Threads that run calls: made when all others are busy, kept for the next call.

use crate::wire::lock;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

type Task = Box<dyn FnOnce() + Send>;

pub struct Pool {
    shared: Arc<Shared>,
    most: usize,
}

struct Shared {
    queue: Mutex<Queue>,
    added: Condvar,
}

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Task>,
    threads: usize,
    idle: usize,
}

impl Pool {
    pub fn new(most: usize) -> Self {
        Pool { shared: Arc::new(Shared { queue: Mutex::default(), added: Condvar::new() }), most }
    }

    pub fn run(&self, task: Task) {
        let mut queue = lock(&self.shared.queue);
        queue.tasks.push_back(task);
        if queue.idle >= queue.tasks.len() {
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
                    queue = self.added.wait(queue).unwrap_or_else(|poisoned| poisoned.into_inner());
                    queue.idle -= 1;
                }
            }
        }
    }
}
