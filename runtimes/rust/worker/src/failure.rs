//! A panic of a handler as the fields of an `error` frame: message, file and line. It does not end the process. Page: runtime/wire-protocol.

use serde_json::{json, Value};
use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::process::exit;

const MAX_MESSAGE_BYTES: usize = 4096;

#[derive(Default)]
pub struct Panic {
    message: String,
    place: Option<(String, u32)>,
}

thread_local! {
    /// The panic that is being caught, if this thread runs a call.
    static PANIC: RefCell<Option<Panic>> = const { RefCell::new(None) };
    static RUNS_CALL: Cell<bool> = const { Cell::new(false) };
}

/// A panic of a call becomes its answer; one of any other thread is printed as usual.
pub fn watch_panics() {
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

/// Runs a call's handler.
pub fn catch<T>(act: impl FnOnce() -> T) -> Result<T, Panic> {
    RUNS_CALL.with(|runs| runs.set(true));
    let result = panic::catch_unwind(AssertUnwindSafe(act));
    RUNS_CALL.with(|runs| runs.set(false));
    result.map_err(|_| PANIC.with(|panic| panic.borrow_mut().take()).unwrap_or_default())
}

impl Panic {
    /// Fields of an `error` frame. A place in the code of others is none of the function's.
    pub fn to_fields(self, root: &str) -> Value {
        let mut error = exception(self.message);
        if let Some((file, line)) = self.place.filter(|(file, _)| !is_of_others(file)) {
            let below = Path::new(&file).strip_prefix(root).map(|path| path.to_string_lossy().into_owned());
            let file = below.unwrap_or(file);
            error["stack"] = format!("at {}:{}", file, line).into();
            error["file"] = file.into();
            error["line"] = line.into();
        }
        error
    }
}

/// True for sources of the language and of fetched crates.
fn is_of_others(file: &str) -> bool {
    file.starts_with("/rustc/") || file.contains("/registry/src/") || file.contains("/git/checkouts/")
}

pub fn exception(message: String) -> Value {
    json!({ "code": "exception", "message": cut(message) })
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

/// Ends a worker that cannot begin.
pub fn fail(message: &str) -> ! {
    eprintln!("{}", message);
    exit(1)
}
