//! Serves one compiled function over a socket of its own: it is built together with the handler.
//!
//!   fn --socket <path | tcp://host:port | fd:number>
//!   tells the uri it listens on in one line on descriptor 3; fd is a connection to its gateway, and it listens nowhere
//!
//! Pages: runtimes/rust, runtime/wire-protocol.

mod attribution;
mod base64;
mod capture;
mod current;
mod envelope;
mod event;
mod failure;
mod lead;
mod link;
mod system;
mod wire;
mod worker;

use capture::Capture;
use failure::fail;
use serde_json::{json, Value};
use std::fmt::Display;
use std::process::exit;
use std::sync::Arc;
use worker::Worker;

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

/// Sends what is left. The C library calls it at the end of the process, and it takes plain functions only. A forked child
/// has copies of what is its parent's to send.
extern "C" fn flush_output() {
    if let Some(capture) = capture::current().filter(|capture| capture.process == std::process::id()) {
        capture.flush();
    }
}

/// Answers calls with the handler until the gateway hangs up.
pub fn serve<A: Answer>(handler: impl Fn(Value) -> A + Send + Sync + 'static) -> ! {
    let link::Meeting { mut reader, writer, lifeline } = link::meet();
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
    system::keep_memory();
    system::at_exit(flush_output);
    failure::watch_panics();
    let handler = Box::new(move |event| handler(event).into_answer());
    Worker::new(function, reader, writer, capture, handler).run(lifeline)
}
