//! Calls of one function, from their frames to their answers.

use crate::capture::Capture;
use crate::event::Function;
use crate::lead::{Lead, Leadership};
use crate::wire::{self, lock, Frame, FrameReader, FrameWriter};
use crate::{current, envelope, failure};
use serde_json::{json, Value};
use std::process::exit;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Instant;

/// Calls that run at once. Each takes a thread; what comes above it the gateway gives to another worker.
const MAX_INFLIGHT: usize = 64;
/// What a reply's header needs beside status and headers, at most.
const HEAD_MARGIN_BYTES: usize = 64;

pub type Handler = dyn Fn(Value) -> Result<Value, String> + Send + Sync;

/// The worker of this process.
pub struct Worker {
    function: Function,
    /// Locked by the thread that leads, while it reads; one that lost the lead may not know yet.
    reader: Mutex<FrameReader>,
    writer: Arc<FrameWriter>,
    capture: &'static Capture,
    handler: Box<Handler>,
    leadership: Leadership,
    /// Open calls, of which there are few at a time.
    calls: Mutex<Vec<(u32, Arc<Call>)>>,
    /// Calls whose last frame was not given to the writer yet.
    running: AtomicUsize,
    finished: Condvar,
    /// True once nothing more comes from the gateway.
    closing: AtomicBool,
}

/// What the reader may tell a call while it runs.
struct Call {
    progress: Mutex<Progress>,
    changed: Condvar,
}

struct Progress {
    credit: usize,
    canceled: bool,
}

/// Ends the process when a thread dies of an error of this crate: nobody would read any more.
struct Survival;

impl Drop for Survival {
    fn drop(&mut self) {
        if thread::panicking() {
            exit(101);
        }
    }
}

impl Worker {
    pub fn new(
        function: Function,
        reader: FrameReader,
        writer: Arc<FrameWriter>,
        capture: &'static Capture,
        handler: Box<Handler>,
    ) -> Arc<Self> {
        Arc::new(Worker {
            function,
            reader: Mutex::new(reader),
            writer,
            capture,
            handler,
            // One more than calls, which reads.
            leadership: Leadership::new(MAX_INFLIGHT + 1),
            calls: Mutex::default(),
            running: AtomicUsize::new(0),
            finished: Condvar::new(),
            closing: AtomicBool::new(false),
        })
    }

    /// The calling thread is the first that runs calls: they need not wait for another one to begin.
    ///
    /// @param lifeline - as `Capture::follow` has it
    pub fn run(self: Arc<Self>, lifeline: Option<i32>) -> ! {
        self.writer.send(wire::READY, 0, &format!("{{\"max_inflight\":{}}}", MAX_INFLIGHT), b"");
        let worker = self.clone();
        let beside = move || {
            let _survival = Survival;
            let capture = worker.capture;
            thread::spawn(move || capture.follow(lifeline));
            worker.leadership.watch(|| worker.begin_thread())
        };
        if thread::Builder::new().spawn(beside).is_err() {
            failure::fail("worker cannot start a thread");
        }
        self.leadership.vacate(|| true);
        self.work()
    }

    fn begin_thread(self: &Arc<Self>) -> bool {
        let worker = self.clone();
        thread::Builder::new().name("call".into()).spawn(move || worker.work()).is_ok()
    }

    /// Leads whenever nobody else does.
    fn work(self: &Arc<Self>) -> ! {
        let _survival = Survival;
        // Whoever starts it may be in the middle of a call.
        current::set(0);
        loop {
            self.lead(self.leadership.wait());
        }
    }

    /// Reads frames, and runs their calls, as long as this thread leads.
    fn lead(self: &Arc<Self>, mut lead: Lead) {
        // True while the last thing done was to end a call.
        let mut follows = false;
        self.writer.flush();
        while lead.is_held() {
            let mut reader = lock(&self.reader);
            let is_waiting = !reader.has_next();
            if is_waiting {
                drop(reader);
                follows = false;
                self.writer.flush();
                if !lead.rest() {
                    break;
                }
                reader = lock(&self.reader);
            } else if !lead.advance() {
                // Another one reads, and what was there may be gone.
                break;
            }
            let next = reader.next();
            drop(reader);
            if is_waiting {
                lead.begin();
            }
            let taken = match next {
                Ok(Some(frame)) if frame.kind == wire::CALL => self.take_call(frame, &mut lead, follows),
                Ok(Some(frame)) => self.take(frame),
                // Nobody shall lead in its place: there is nothing to read.
                Ok(None) if lead.rest() => self.end(),
                Ok(None) => break,
                Err(problem) => Err(problem),
            };
            follows = true;
            if let Err(message) = taken {
                self.writer.send(wire::ERROR, 0, &json!({ "code": "protocol", "message": message }).to_string(), b"");
                exit(1);
            }
        }
        // What was added before the lead was lost.
        self.writer.flush();
    }

    /// The gateway sends nothing more: what runs is finished.
    fn end(&self) -> ! {
        self.closing.store(true, Ordering::SeqCst);
        let mut calls = lock(&self.calls);
        while self.running.load(Ordering::SeqCst) > 0 {
            calls = self.finished.wait(calls).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        drop(calls);
        self.writer.settle();
        exit(0)
    }

    fn take_call(self: &Arc<Self>, frame: Frame, lead: &mut Lead, follows: bool) -> Result<(), String> {
        let id = frame.id;
        let progress = Progress { credit: wire::STREAM_WINDOW_BYTES, canceled: false };
        let call = Arc::new(Call { progress: Mutex::new(progress), changed: Condvar::new() });
        {
            let mut calls = lock(&self.calls);
            if calls.iter().any(|(open, _)| *open == id) {
                return Err(format!("DUPLICATE_ID: call id {} is in use", id));
            }
            calls.push((id, call.clone()));
        }
        self.running.fetch_add(1, Ordering::SeqCst);
        let event = self.function.to_event(frame)?;
        self.capture.begin(id, follows);
        if self.leadership.is_quick() {
            lead.advance();
        } else {
            self.pass_on(lead);
        }
        self.answer(id, &call, event, lead);
        Ok(())
    }

    /// Lets another thread read. Answers that wait for others would wait too long.
    fn pass_on(self: &Arc<Self>, lead: &mut Lead) {
        self.writer.flush();
        lead.pass_on(|| self.begin_thread());
    }

    /// Handles a frame other than a call; the error says why the connection cannot go on.
    fn take(&self, frame: Frame) -> Result<(), String> {
        match frame.kind {
            wire::CANCEL => self.tell(frame.id, |progress| progress.canceled = true),
            wire::MORE => {
                let granted = frame.fields()?.get("bytes").and_then(Value::as_u64).unwrap_or(0) as usize;
                self.tell(frame.id, |progress| {
                    progress.credit = (progress.credit + granted.min(wire::STREAM_WINDOW_BYTES)).min(wire::STREAM_WINDOW_BYTES)
                });
            }
            wire::PING => self.writer.send(wire::PONG, frame.id, "", b""),
            wire::PONG => {}
            kind => return Err(format!("UNEXPECTED_KIND: a worker does not take frames of kind {}", kind)),
        }
        Ok(())
    }

    fn tell(&self, id: u32, change: impl FnOnce(&mut Progress)) {
        if let Some((_, call)) = lock(&self.calls).iter().find(|(open, _)| *open == id) {
            change(&mut lock(&call.progress));
            call.changed.notify_all();
        }
    }

    /// Runs the handler and sends the call's frames. A panic of one call never reaches another.
    fn answer(self: &Arc<Self>, id: u32, call: &Call, event: Value, lead: &mut Lead) {
        current::set(id);
        let begun = Instant::now();
        let result = failure::catch(|| (self.handler)(event));
        self.leadership.learn(begun.elapsed());
        let error = match result {
            Ok(Ok(answer)) => match envelope::to_reply(answer) {
                Ok(reply) if reply.head.len() > wire::MAX_REPLY_HEAD_BYTES - HEAD_MARGIN_BYTES => {
                    let message = format!("status and headers take {} bytes, above 512 KiB", reply.head.len());
                    json!({ "code": "contract", "message": message })
                }
                Ok(reply) if reply.body.len() <= wire::MAX_REPLY_BODY_BYTES => {
                    return self.finish(id, call, wire::REPLY, &(reply.head + "}"), &reply.body, lead);
                }
                Ok(reply) => return self.stream(id, call, &reply, lead),
                Err(message) => json!({ "code": "contract", "message": message }),
            },
            Ok(Err(message)) => failure::exception(message),
            Err(panic) => panic.to_fields(&self.function.root),
        };
        self.finish(id, call, wire::ERROR, &error.to_string(), b"", lead);
    }

    /// Sends the call's last frame, after all of its output. The leader's leaves with those of the calls behind it.
    fn finish(&self, id: u32, call: &Call, kind: u8, header: &str, body: &[u8], lead: &mut Lead) {
        self.capture.end(id);
        {
            let mut calls = lock(&self.calls);
            if let Some(at) = calls.iter().position(|(open, _)| *open == id) {
                calls.swap_remove(at);
            }
        }
        let (kind, header, body) = match lock(&call.progress).canceled {
            true => (wire::END, "{\"canceled\":true}", &b""[..]),
            false => (kind, header, body),
        };
        if lead.advance() {
            self.writer.join(kind, id, header, body);
        } else {
            self.writer.send(kind, id, header, body);
        }
        self.running.fetch_sub(1, Ordering::SeqCst);
        if self.closing.load(Ordering::SeqCst) {
            // Not between the other's look and its wait.
            drop(lock(&self.calls));
            self.finished.notify_all();
        }
    }

    /// Sends a large body in pieces, as far as the gateway grants them, which somebody else has to read.
    fn stream(self: &Arc<Self>, id: u32, call: &Call, reply: &envelope::Reply, lead: &mut Lead) {
        self.pass_on(lead);
        let head = format!("{},\"stream\":true,\"length\":{}}}", reply.head, reply.body.len());
        self.writer.send(wire::REPLY, id, &head, b"");
        let mut rest = &reply.body[..];
        while !rest.is_empty() {
            let size = call.take_credit(rest.len());
            if size == 0 {
                break;
            }
            self.writer.send(wire::CHUNK, id, "", &rest[..size]);
            rest = &rest[size..];
        }
        self.finish(id, call, wire::END, "", b"", lead);
    }
}

impl Call {
    /// Waits for bytes that may be sent; 0 when nobody wants them any more.
    fn take_credit(&self, wanted: usize) -> usize {
        let mut progress = lock(&self.progress);
        loop {
            if progress.canceled {
                return 0;
            }
            let size = progress.credit.min(wanted);
            if size > 0 {
                progress.credit -= size;
                return size;
            }
            progress = self.changed.wait(progress).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }
}
