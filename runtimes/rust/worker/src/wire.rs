//! Frames: u32 length | u8 kind | u32 id | u32 header length | header: JSON object | body, integers big-endian.

use crate::system;
use serde_json::{Map, Value};
use std::io::{self, IoSlice, Write};
use std::os::unix::io::{AsRawFd, OwnedFd};
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
/// What a reader holds of its source. A frame that is larger is read into memory of its own.
const READ_BYTES: usize = 64 << 10;
/// Room for one more read: with less, what is held moves to the front.
const LEAST_READ_BYTES: usize = 4 << 10;
/// A body from this size on is written from where it is, a smaller one is copied behind others.
const OWN_WRITE_BYTES: usize = 16 << 10;
/// Answers, and bytes of them, that wait for each other at most.
const JOINED_FRAMES: usize = 8;
const JOINED_BYTES: usize = 64 << 10;

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
    header: Vec<u8>,
    pub body: Vec<u8>,
}

impl Frame {
    /// The header as an object; an empty one has no fields.
    pub fn fields(&self) -> Result<Map<String, Value>, String> {
        if self.header.is_empty() {
            return Ok(Map::new());
        }
        match serde_json::from_slice(&self.header) {
            Ok(Value::Object(fields)) => Ok(fields),
            _ => Err("BAD_HEADER: frame header is not a JSON object".into()),
        }
    }
}

pub struct FrameReader {
    source: OwnedFd,
    /// What was read and not taken, from `at` on. It never has more memory than it begins with.
    held: Vec<u8>,
    at: usize,
    /// What the body of a call may have beyond the protocol's own limit: the function's `max_body_bytes`.
    pub max_body_bytes: usize,
    /// The only kind taken; a reader begins with `HELLO`.
    pub only: Option<u8>,
}

impl FrameReader {
    pub fn new(source: OwnedFd) -> Self {
        FrameReader { source, held: Vec::with_capacity(READ_BYTES), at: 0, max_body_bytes: 0, only: Some(HELLO) }
    }

    /// True when all of the next frame was read already.
    pub fn has_next(&self) -> bool {
        let held = self.held.len() - self.at;
        held >= 4 && held >= 4 + self.word(0)
    }

    /// The next frame, `None` after the last one.
    pub fn next(&mut self) -> Result<Option<Frame>, String> {
        if !self.fill(4) {
            return Ok(None);
        }
        let length = self.word(0);
        if length < FIXED_BYTES {
            return Err(format!("FRAME_TOO_SHORT: frame length {} is below {}", length, FIXED_BYTES));
        }
        if !self.fill(PREFIX_BYTES) {
            return Ok(None);
        }
        let (kind, id, header_bytes) = (self.held[self.at + 4], self.word(5) as u32, self.word(9));
        self.check(kind, header_bytes, length - FIXED_BYTES)?;
        if 4 + length <= READ_BYTES && !self.fill(4 + length) {
            return Ok(None);
        }
        self.at += PREFIX_BYTES;
        let header = self.take(header_bytes);
        let body = self.take(length - FIXED_BYTES - header_bytes);
        Ok(header.zip(body).map(|(header, body)| Frame { kind, id, header, body }))
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

    /// Sees to it that so many bytes are held; false when the stream ends before.
    fn fill(&mut self, wanted: usize) -> bool {
        while self.held.len() - self.at < wanted {
            let room = self.held.capacity() - self.at;
            if self.at == self.held.len() || room < wanted || self.held.capacity() - self.held.len() < LEAST_READ_BYTES {
                self.held.drain(..self.at);
                self.at = 0;
            }
            let most = self.held.capacity() - self.held.len();
            if system::read_onto(self.source.as_raw_fd(), &mut self.held, most) == 0 {
                return false;
            }
        }
        true
    }

    /// The next bytes, what is held first; `None` when the stream ends before.
    fn take(&mut self, count: usize) -> Option<Vec<u8>> {
        let mut taken = Vec::with_capacity(count);
        let held = count.min(self.held.len() - self.at);
        taken.extend_from_slice(&self.held[self.at..self.at + held]);
        self.at += held;
        while taken.len() < count {
            let missing = count - taken.len();
            if system::read_onto(self.source.as_raw_fd(), &mut taken, missing) == 0 {
                return None;
            }
        }
        Some(taken)
    }
}

pub fn append_frame(to: &mut Vec<u8>, kind: u8, id: u32, header: &str, body: &[u8]) {
    append_head(to, kind, id, header, body.len());
    to.extend_from_slice(body);
}

fn append_head(to: &mut Vec<u8>, kind: u8, id: u32, header: &str, body_bytes: usize) {
    let length = (FIXED_BYTES + header.len() + body_bytes) as u32;
    to.extend_from_slice(&length.to_be_bytes());
    to.push(kind);
    to.extend_from_slice(&id.to_be_bytes());
    to.extend_from_slice(&(header.len() as u32).to_be_bytes());
    to.extend_from_slice(header.as_bytes());
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
    /// Frames in `pending`.
    joined: usize,
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

    /// Adds a frame, which leaves now.
    pub fn send(&self, kind: u8, id: u32, header: &str, body: &[u8]) {
        let mut queue = lock(&self.queue);
        if body.len() < OWN_WRITE_BYTES || queue.writing {
            append_frame(&mut queue.pending, kind, id, header, body);
            self.write(queue, b"");
        } else {
            append_head(&mut queue.pending, kind, id, header, body.len());
            self.write(queue, body);
        }
    }

    /// Adds a frame, which leaves with the next ones, at the latest with `flush`.
    pub fn join(&self, kind: u8, id: u32, header: &str, body: &[u8]) {
        if body.len() >= OWN_WRITE_BYTES {
            return self.send(kind, id, header, body);
        }
        let mut queue = lock(&self.queue);
        append_frame(&mut queue.pending, kind, id, header, body);
        queue.joined += 1;
        if queue.joined >= JOINED_FRAMES || queue.pending.len() >= JOINED_BYTES {
            self.write(queue, b"");
        }
    }

    /// Writes what was added.
    pub fn flush(&self) {
        self.write(lock(&self.queue), b"");
    }

    /// Writes until nothing is left, unless another thread does; the body belongs behind what is there by now.
    fn write<'a>(&'a self, mut queue: MutexGuard<'a, Queue>, mut body: &[u8]) {
        if queue.failed {
            queue.pending.clear();
        }
        if queue.writing || queue.pending.is_empty() {
            return;
        }
        queue.writing = true;
        while !queue.pending.is_empty() && !queue.failed {
            let spare = std::mem::take(&mut queue.spare);
            let mut batch = std::mem::replace(&mut queue.pending, spare);
            queue.joined = 0;
            drop(queue);
            let failed = write_both(&mut **lock(&self.target), &batch, std::mem::take(&mut body)).is_err();
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
    pub fn settle(&self) {
        self.flush();
        let mut queue = lock(&self.queue);
        queue.waiting += 1;
        while queue.writing {
            queue = self.idle.wait(queue).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        queue.waiting -= 1;
    }
}

fn write_both(target: &mut dyn Write, mut first: &[u8], mut second: &[u8]) -> io::Result<()> {
    while !first.is_empty() && !second.is_empty() {
        let count = match target.write_vectored(&[IoSlice::new(first), IoSlice::new(second)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => result?,
        };
        second = &second[count.saturating_sub(first.len())..];
        first = &first[count.min(first.len())..];
    }
    target.write_all(first)?;
    target.write_all(second)
}

/// Locks; a panic elsewhere leaves no state behind that would matter here.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
