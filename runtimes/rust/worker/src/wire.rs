//! Frames: u32 length | u8 kind | u32 id | u32 header length | header: JSON object | body, integers big-endian.

use crate::system;
use serde_json::{Map, Value};
use std::io::{self, Read, Write};
use std::os::unix::io::AsRawFd;
use std::sync::{Condvar, Mutex, MutexGuard};

pub const HELLO: u8 = 1;
pub const READY: u8 = 2;
pub const START: u8 = 3;
pub const LOG: u8 = 7;
pub const CALL: u8 = 16;
pub const REPLY: u8 = 17;
pub const CHUNK: u8 = 18;
pub const END: u8 = 19;
pub const CANCEL: u8 = 20;
pub const ERROR: u8 = 21;
pub const MORE: u8 = 22;
pub const PING: u8 = 32;
pub const PONG: u8 = 33;

pub const PROTOCOL_VERSION: u8 = 1;
const PREFIX_BYTES: usize = 13;
const FIXED_BYTES: usize = 9;
pub const MIB: usize = 1 << 20;
const KIB: usize = 1 << 10;
/// Largest body of one `reply`; a larger one is sent as chunks.
pub const MAX_REPLY_BODY_BYTES: usize = MIB;
/// Bytes of a stream that may be under way, and of one chunk.
pub const STREAM_WINDOW_BYTES: usize = 256 << 10;
/// Largest header of a `reply`.
pub const MAX_REPLY_HEAD_BYTES: usize = 512 * KIB;
const READ_BYTES: usize = 64 << 10;

/// Name, and most bytes of header and body, of a kind that a gateway sends; looked at before memory is taken for them.
fn limit_of(kind: u8) -> Option<(&'static str, usize, usize)> {
    match kind {
        HELLO => Some(("hello", 4 * KIB, 16)),
        START => Some(("start", 4 * MIB, 0)),
        CALL => Some(("call", MIB, 16 * MIB)),
        CANCEL => Some(("cancel", 4 * KIB, 0)),
        MORE => Some(("more", 4 * KIB, 0)),
        PING => Some(("ping", 4 * KIB, 64)),
        PONG => Some(("pong", 4 * KIB, 64)),
        _ => None,
    }
}

pub struct Frame {
    pub kind: u8,
    pub id: u32,
    rest: Vec<u8>,
    header_bytes: usize,
}

impl Frame {
    pub fn body(&self) -> &[u8] {
        &self.rest[self.header_bytes..]
    }

    /// The header as an object; an empty one has no fields.
    pub fn fields(&self) -> Result<Map<String, Value>, String> {
        if self.header_bytes == 0 {
            return Ok(Map::new());
        }
        match serde_json::from_slice(&self.rest[..self.header_bytes]) {
            Ok(Value::Object(fields)) => Ok(fields),
            _ => Err("BAD_HEADER: frame header is not a JSON object".into()),
        }
    }
}

pub struct FrameReader {
    source: Box<dyn Read + Send>,
    descriptor: i32,
    held: Vec<u8>,
    at: usize,
    /// What the body of a call may have beyond the protocol's own limit: the function's `max_body_bytes`.
    pub max_body_bytes: usize,
    /// The only kind taken; a reader begins with `HELLO`.
    pub only: Option<u8>,
}

impl FrameReader {
    pub fn new<S: Read + AsRawFd + Send + 'static>(source: S) -> Self {
        let descriptor = source.as_raw_fd();
        let held = Vec::with_capacity(READ_BYTES);
        FrameReader { source: Box::new(source), descriptor, held, at: 0, max_body_bytes: 0, only: Some(HELLO) }
    }

    /// True when the next frame was read already.
    pub fn has_next(&self) -> bool {
        let held = self.held.len() - self.at;
        held >= 4 && held >= 4 + self.word(0)
    }

    /// False when nothing comes within the time.
    pub fn wait(&self, milliseconds: i32) -> bool {
        self.has_next() || system::wait_readable(&[self.descriptor], milliseconds)
    }

    /// The next frame, `None` after the last one.
    pub fn next(&mut self) -> Result<Option<Frame>, String> {
        if !self.fill(4)? {
            return Ok(None);
        }
        let length = self.word(0);
        if length < FIXED_BYTES {
            return Err(format!("FRAME_TOO_SHORT: frame length {} is below {}", length, FIXED_BYTES));
        }
        if !self.fill(PREFIX_BYTES)? {
            return Ok(None);
        }
        let header_bytes = self.word(9);
        self.check(self.held[self.at + 4], header_bytes, length - FIXED_BYTES)?;
        if !self.fill(4 + length)? {
            return Ok(None);
        }
        let (kind, id) = (self.held[self.at + 4], self.word(5) as u32);
        let rest = self.held[self.at + PREFIX_BYTES..self.at + 4 + length].to_vec();
        self.at += 4 + length;
        Ok(Some(Frame { kind, id, rest, header_bytes }))
    }

    /// Why a frame of a kind cannot be, by the bytes of its header and of header and body.
    fn check(&self, kind: u8, header: usize, both: usize) -> Result<(), String> {
        let (name, most_header, most_body) = match limit_of(kind) {
            Some(limit) => limit,
            None => return Err(format!("UNKNOWN_KIND: a worker does not take frames of kind {}", kind)),
        };
        if self.only.map_or(false, |only| only != kind) {
            return Err(format!("UNEXPECTED_KIND: a {} frame must not come first", name));
        }
        if header > most_header {
            return Err(format!("HEADER_TOO_LONG: header of a {} frame has {} bytes, above {}", name, header, most_header));
        }
        if header > both {
            return Err("HEADER_TOO_LONG: frame header is longer than its frame".into());
        }
        let most = most_body + if kind == CALL { self.max_body_bytes } else { 0 };
        if both - header > most {
            return Err(format!("FRAME_TOO_LONG: body of a {} frame has {} bytes, above {}", name, both - header, most));
        }
        Ok(())
    }

    fn word(&self, offset: usize) -> usize {
        let from = self.at + offset;
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&self.held[from..from + 4]);
        u32::from_be_bytes(bytes) as usize
    }

    /// False when the stream ends before so many bytes are there.
    fn fill(&mut self, wanted: usize) -> Result<bool, String> {
        while self.held.len() - self.at < wanted {
            if self.at > 0 {
                self.held.drain(..self.at);
                self.at = 0;
            }
            let before = self.held.len();
            self.held.resize(before + READ_BYTES.max(wanted.saturating_sub(before).min(MIB)), 0);
            let count = match self.source.read(&mut self.held[before..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    self.held.truncate(before);
                    continue;
                }
                // A connection that broke has ended.
                result => result.unwrap_or(0),
            };
            self.held.truncate(before + count);
            if count == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

pub fn append_frame(to: &mut Vec<u8>, kind: u8, id: u32, header: &str, body: &[u8]) {
    let length = (FIXED_BYTES + header.len() + body.len()) as u32;
    to.extend_from_slice(&length.to_be_bytes());
    to.push(kind);
    to.extend_from_slice(&id.to_be_bytes());
    to.extend_from_slice(&(header.len() as u32).to_be_bytes());
    to.extend_from_slice(header.as_bytes());
    to.extend_from_slice(body);
}

/// Joins the frames of several threads: the first one writes, and takes along what others add while it does.
pub struct FrameWriter {
    queue: Mutex<Queue>,
    idle: Condvar,
    target: Mutex<Box<dyn Write + Send>>,
}

#[derive(Default)]
struct Queue {
    pending: Vec<u8>,
    spare: Vec<u8>,
    writing: bool,
    failed: bool,
    /// Threads that wait until everything is written.
    waiting: usize,
}

impl FrameWriter {
    pub fn new(target: Box<dyn Write + Send>) -> Self {
        FrameWriter { queue: Mutex::default(), idle: Condvar::new(), target: Mutex::new(target) }
    }

    pub fn send(&self, kind: u8, id: u32, header: &str, body: &[u8]) {
        let mut queue = lock(&self.queue);
        if queue.failed {
            return;
        }
        append_frame(&mut queue.pending, kind, id, header, body);
        if queue.writing {
            return;
        }
        queue.writing = true;
        while !queue.pending.is_empty() && !queue.failed {
            let spare = std::mem::take(&mut queue.spare);
            let mut batch = std::mem::replace(&mut queue.pending, spare);
            drop(queue);
            let failed = lock(&self.target).write_all(&batch).is_err();
            queue = lock(&self.queue);
            queue.failed = failed;
            if batch.capacity() <= MIB {
                batch.clear();
                queue.spare = batch;
            }
        }
        queue.writing = false;
        // Not without somebody who waits: it is a system call in any case.
        if queue.waiting > 0 {
            self.idle.notify_all();
        }
    }

    /// Returns when everything sent so far is written.
    pub fn flush(&self) {
        let mut queue = lock(&self.queue);
        queue.waiting += 1;
        while queue.writing {
            queue = self.idle.wait(queue).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        queue.waiting -= 1;
    }
}

/// Locks; a panic elsewhere leaves no state behind that would matter here.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
