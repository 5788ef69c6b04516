//! Serves one compiled function over a socket of its own: it is built together with the handler.
//!
//!   fn --socket <path | tcp://host:port>
//!   tells the uri it listens on in one line on descriptor 3
//!
//! Pages: runtimes/rust, runtime/wire-protocol.

mod attribution;
mod base64;
mod capture;
mod envelope;
mod event;
mod link;
mod pool;
mod system;
mod wire;

use capture::Capture;
use event::Function;
use pool::Pool;
use serde_json::{json, Value};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt::Display;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use wire::{lock, Frame, FrameReader, FrameWriter};

/// Calls that run at once. Each takes a thread; what comes above it the gateway gives to another worker.
const MAX_INFLIGHT: usize = 64;
/// Milliseconds a call may wait for a thread before another one is put to work.
const BEHIND_MS: i32 = 1;
const MAX_MESSAGE_BYTES: usize = 4096;

/// What a handler may return: an envelope, or a `Result` of one.
pub trait Answer {
    fn into_answer(self) -> Result<Value, String>;
}

impl Answer for Value {
    fn into_answer(self) -> Result<Value, String> {
        Ok(self)
    }
}

impl<E: Display> Answer for Result<Value, E> {
    fn into_answer(self) -> Result<Value, String> {
        self.map_err(|error| error.to_string())
    }
}

type Handler = dyn Fn(Value) -> Result<Value, String> + Send + Sync;

struct Worker {
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

#[derive(Default)]
struct Panic {
    message: String,
    place: Option<(String, u32)>,
}

thread_local! {
    /// The panic that is being caught, if this thread runs a call.
    static PANIC: RefCell<Option<Panic>> = const { RefCell::new(None) };
    static RUNS_CALL: Cell<bool> = const { Cell::new(false) };
}

/// For the end of the process, which is told to a plain function.
extern "C" fn flush_output() {
    if let Some(capture) = capture::current() {
        capture.flush();
    }
}

/// Answers calls with the handler until the gateway hangs up.
pub fn serve<A: Answer>(handler: impl Fn(Value) -> A + Send + Sync + 'static) -> ! {
    let (mut reader, writer) = link::meet();
    let writer = Arc::new(writer);
    let function = match link::start(&mut reader) {
        Ok(function) => function,
        Err(message) => {
            writer.send(wire::ERROR, 0, &json!({ "code": "load", "message": message }).to_string(), b"");
            exit(1);
        }
    };
    let capture = match Capture::begin_process(writer.clone()) {
        Some(capture) => capture,
        None => fail("worker cannot capture output"),
    };
    system::at_exit(flush_output);
    thread::spawn(move || capture.follow());
    watch_panics();
    let worker = Arc::new(Worker {
        function,
        writer,
        capture,
        handler: Box::new(move |event| handler(event).into_answer()),
        calls: Mutex::default(),
        finished: Condvar::new(),
        closing: AtomicBool::new(false),
    });
    worker.run(&mut reader)
}

impl Worker {
    fn run(self: Arc<Self>, reader: &mut FrameReader) -> ! {
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
        RUNS_CALL.with(|runs| runs.set(true));
        attribution::set(id);
        let result = panic::catch_unwind(AssertUnwindSafe(|| (self.handler)(event)));
        RUNS_CALL.with(|runs| runs.set(false));
        let error = match result {
            Ok(Ok(answer)) => match envelope::to_reply(answer) {
                Ok(reply) if reply.body.len() <= wire::MAX_REPLY_BODY_BYTES => {
                    return self.finish(id, call, wire::REPLY, &(reply.head + "}"), &reply.body);
                }
                Ok(reply) => return self.stream(id, call, &reply),
                Err(message) => json!({ "code": "contract", "message": message }),
            },
            Ok(Err(message)) => json!({ "code": "exception", "message": cut(message) }),
            Err(_) => self.describe_panic(),
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

    fn describe_panic(&self) -> Value {
        let Panic { message, place } = PANIC.with(|panic| panic.borrow_mut().take()).unwrap_or_default();
        let mut error = json!({ "code": "exception", "message": cut(message) });
        if let Some((file, line)) = place {
            let below = Path::new(&file).strip_prefix(&self.function.root).map(|path| path.to_string_lossy().into_owned());
            let file = below.unwrap_or(file);
            error["stack"] = format!("at {}:{}", file, line).into();
            error["file"] = file.into();
            error["line"] = line.into();
        }
        error
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

fn cut(mut message: String) -> String {
    if message.len() > MAX_MESSAGE_BYTES {
        let mut end = MAX_MESSAGE_BYTES;
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
        message.push_str("...");
    }
    message
}

/// A panic of a call becomes its answer; one of any other thread is printed as usual.
fn watch_panics() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !RUNS_CALL.try_with(Cell::get).unwrap_or(false) {
            return usual(info);
        }
        let payload = info.payload();
        let message = payload
            .downcast_ref::<&str>()
            .map(|text| text.to_string())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "handler panicked".into());
        let place = info.location().map(|at| (at.file().to_string(), at.line()));
        PANIC.with(|panic| *panic.borrow_mut() = Some(Panic { message, place }));
    }));
}

fn fail(message: &str) -> ! {
    eprintln!("{}", message);
    exit(1)
}
