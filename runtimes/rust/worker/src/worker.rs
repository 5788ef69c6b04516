//! Calls of one function, from their frames to their answers.

use crate::capture::Capture;
use crate::event::Function;
use crate::pool::Pool;
use crate::wire::{self, lock, Frame, FrameReader, FrameWriter};
use crate::{current, envelope, failure};
use serde_json::{json, Value};
use std::collections::HashMap;
use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// Calls that run at once. Each takes a thread; what comes above it the gateway gives to another worker.
const MAX_INFLIGHT: usize = 64;
/// Milliseconds a call may wait for a thread before another one is put to work.
const BEHIND_MS: i32 = 1;
/// What a reply's header needs beside status and headers, at most.
const HEAD_MARGIN_BYTES: usize = 64;

pub type Handler = dyn Fn(Value) -> Result<Value, String> + Send + Sync;

/// The worker of this process.
pub struct Worker {
    function: Function,
    writer: Arc<FrameWriter>,
    capture: &'static Capture,
    handler: Box<Handler>,
    calls: Mutex<HashMap<u32, Arc<Call>>>,
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

impl Worker {
    pub fn new(function: Function, writer: Arc<FrameWriter>, capture: &'static Capture, handler: Box<Handler>) -> Self {
        let calls = Mutex::default();
        Worker { function, writer, capture, handler, calls, finished: Condvar::new(), closing: AtomicBool::new(false) }
    }

    pub fn run(self: Arc<Self>, reader: &mut FrameReader) -> ! {
        self.writer.send(wire::READY, 0, &format!("{{\"max_inflight\":{}}}", MAX_INFLIGHT), b"");
        let pool = Pool::new(MAX_INFLIGHT);
        loop {
            if !reader.has_next() {
                pool.wake();
            }
            // Calls that wait behind slow ones get threads of their own, more with every look.
            while pool.is_behind() && !reader.wait(BEHIND_MS) {
                pool.grow();
            }
            let taken = match reader.next() {
                Ok(Some(frame)) => self.take(frame, &pool),
                Ok(None) => break,
                Err(problem) => Err(problem),
            };
            if let Err(message) = taken {
                self.writer.send(wire::ERROR, 0, &json!({ "code": "protocol", "message": message }).to_string(), b"");
                exit(1);
            }
        }
        // The gateway sends nothing more: what runs is finished.
        self.closing.store(true, Ordering::SeqCst);
        let mut calls = lock(&self.calls);
        while !calls.is_empty() {
            calls = self.finished.wait(calls).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        drop(calls);
        self.writer.flush();
        exit(0)
    }

    /// Handles a frame; the error says why the connection cannot go on.
    fn take(self: &Arc<Self>, frame: Frame, pool: &Pool) -> Result<(), String> {
        match frame.kind {
            wire::CALL => {
                let progress = Progress { credit: wire::STREAM_WINDOW_BYTES, canceled: false };
                let call = Arc::new(Call { progress: Mutex::new(progress), changed: Condvar::new() });
                if lock(&self.calls).insert(frame.id, call.clone()).is_some() {
                    return Err(format!("DUPLICATE_ID: call id {} is in use", frame.id));
                }
                let event = self.function.to_event(&frame)?;
                let (worker, id) = (self.clone(), frame.id);
                drop(frame);
                self.capture.begin(id);
                pool.add(Box::new(move || worker.answer(id, &call, event)));
            }
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
        if let Some(call) = lock(&self.calls).get(&id) {
            change(&mut lock(&call.progress));
            call.changed.notify_all();
        }
    }

    /// Runs the handler and sends the call's frames. A panic of one call never reaches another.
    fn answer(&self, id: u32, call: &Call, event: Value) {
        current::set(id);
        let error = match failure::catch(|| (self.handler)(event)) {
            Ok(Ok(answer)) => match envelope::to_reply(answer) {
                Ok(reply) if reply.head.len() > wire::MAX_REPLY_HEAD_BYTES - HEAD_MARGIN_BYTES => {
                    let message = format!("status and headers take {} bytes, above 512 KiB", reply.head.len());
                    json!({ "code": "contract", "message": message })
                }
                Ok(reply) if reply.body.len() <= wire::MAX_REPLY_BODY_BYTES => {
                    return self.finish(id, call, wire::REPLY, &(reply.head + "}"), &reply.body);
                }
                Ok(reply) => return self.stream(id, call, &reply),
                Err(message) => json!({ "code": "contract", "message": message }),
            },
            Ok(Err(message)) => failure::exception(message),
            Err(panic) => panic.to_fields(&self.function.root),
        };
        self.finish(id, call, wire::ERROR, &error.to_string(), b"");
    }

    /// Sends the call's last frame, after all of its output.
    fn finish(&self, id: u32, call: &Call, kind: u8, header: &str, body: &[u8]) {
        self.capture.end(id);
        lock(&self.calls).remove(&id);
        if lock(&call.progress).canceled {
            self.writer.send(wire::END, id, "{\"canceled\":true}", b"");
        } else {
            self.writer.send(kind, id, header, body);
        }
        if self.closing.load(Ordering::SeqCst) {
            self.finished.notify_all();
        }
    }

    /// Sends a large body in pieces, as far as the gateway grants them.
    fn stream(&self, id: u32, call: &Call, reply: &envelope::Reply) {
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
        self.finish(id, call, wire::END, "", b"");
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
