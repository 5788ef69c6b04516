//! Captures what user code prints. What a call's thread, or one that it started, writes to descriptors 1 and 2 belongs to the
//! call (attribution.rs). Everything else comes through the pipes that stand in for the two descriptors, where its writer is
//! not known: it belongs to the open call when there is just one, and else goes on to where the process's output went before.

use crate::current;
use crate::system;
use crate::wire::{lock, FrameWriter, LOG};
use std::io::Write;
use std::process::exit;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex};

/// Captured output of one call and stream that is passed on.
const MAX_CAPTURED_BYTES: usize = 64 << 10;
const READ_BYTES: usize = 16 << 10;
const NAMES: [&str; 2] = ["stdout", "stderr"];

/// The capture of this process, once it was installed.
static PROCESS_CAPTURE: AtomicPtr<Capture> = AtomicPtr::new(ptr::null_mut());

pub struct Capture {
    /// Where standard error led before.
    outside: i32,
    /// Id of the process that it belongs to; a forked child only has a copy.
    pub process: u32,
    writer: Arc<FrameWriter>,
    state: Mutex<State>,
}

struct State {
    streams: [Stream; 2],
    open: Vec<Open>,
    /// What the pipes are read into, from the first output on.
    buffer: Vec<u8>,
}

struct Stream {
    /// End of the pipe that stands in for the descriptor.
    pipe: i32,
    /// Where it led before.
    outside: i32,
}

/// An open call, and what it wrote to each stream.
struct Open {
    id: u32,
    output: [Output; 2],
}

#[derive(Default)]
struct Output {
    /// Bytes so far.
    bytes: usize,
    /// The beginning of a character whose rest has not come yet.
    rest: Vec<u8>,
}

pub fn current() -> Option<&'static Capture> {
    // Set once, and never taken back.
    unsafe { PROCESS_CAPTURE.load(Ordering::Acquire).as_ref() }
}

impl Capture {
    /// Puts pipes in the place of descriptors 1 and 2, until the end of the process.
    pub fn begin_process(writer: Arc<FrameWriter>) -> Option<&'static Self> {
        let stream = |fd| system::redirect(fd).map(|(pipe, outside)| Stream { pipe, outside });
        let streams = [stream(1)?, stream(2)?];
        let outside = streams[1].outside;
        let state = Mutex::new(State { streams, open: Vec::new(), buffer: Vec::new() });
        let made = Box::leak(Box::new(Capture { outside, process: std::process::id(), writer, state }));
        PROCESS_CAPTURE.store(made, Ordering::Release);
        Some(made)
    }

    /// Empties the pipes again and again, so that no writer waits for room in them.
    ///
    /// @param lifeline - a pipe at whose end the process ends too
    pub fn follow(&self, lifeline: Option<i32>) {
        let [stdout, stderr] = lock(&self.state).pipes();
        loop {
            let [_, _, is_over] = system::readable([stdout, stderr, lifeline.unwrap_or(system::NONE)], -1);
            if is_over {
                exit(0);
            }
            lock(&self.state).drain(&self.writer);
        }
    }

    /// Called before a call runs: what is in the pipes by now belongs to the call that was alone until now, if there was one.
    ///
    /// @param follows - the calling thread has just ended another call, and looked into the pipes for it
    pub fn begin(&self, id: u32, follows: bool) {
        let mut state = lock(&self.state);
        if state.open.len() == 1 || (state.open.is_empty() && !follows) {
            state.drain(&self.writer);
        }
        state.open.push(Open { id, output: Default::default() });
    }

    /// Called by the call's thread before its last frame; afterwards its output is complete.
    pub fn end(&self, id: u32) {
        // What `print!` holds back until the end of a line.
        let _ = std::io::stdout().flush();
        current::set(0);
        let mut state = lock(&self.state);
        if state.open.len() <= 2 {
            state.drain(&self.writer);
        }
        if let Some(at) = state.open.iter().position(|open| open.id == id) {
            let ended = state.open.swap_remove(at);
            ended.settle(&self.writer);
        }
    }

    /// Takes what a call's thread writes; false when the call is over.
    pub fn take(&self, stream: usize, id: u32, bytes: &[u8]) -> bool {
        let mut state = lock(&self.state);
        if state.open.len() == 1 {
            state.drain(&self.writer);
        }
        match state.open.iter_mut().find(|open| open.id == id) {
            Some(owner) => owner.pass(stream, &self.writer, bytes),
            None => return false,
        }
        true
    }

    /// Lets standard error lead where it led before; nothing of it is captured any more.
    pub fn step_aside(&self) {
        system::replace(self.outside, 2);
    }

    /// The last chance before the process is gone, for output and for answers that have not left.
    pub fn flush(&self) {
        if let Ok(mut state) = self.state.try_lock() {
            state.drain(&self.writer);
            for open in &state.open {
                open.settle(&self.writer);
            }
        }
        self.writer.flush();
    }
}

impl State {
    fn pipes(&self) -> [i32; 2] {
        [self.streams[0].pipe, self.streams[1].pipe]
    }

    /// Takes what is in the pipes.
    fn drain(&mut self, writer: &FrameWriter) {
        let is_readable = system::readable(self.pipes(), 0);
        let State { streams, open, buffer } = self;
        let mut alone = if open.len() == 1 { open.first_mut() } else { None };
        for at in (0..streams.len()).filter(|&at| is_readable[at]) {
            buffer.resize(READ_BYTES, 0);
            loop {
                let count = system::read_some(streams[at].pipe, buffer);
                if count == 0 {
                    break;
                }
                match &mut alone {
                    Some(owner) => owner.pass(at, writer, &buffer[..count]),
                    None => system::write_all(streams[at].outside, &buffer[..count]),
                }
            }
        }
    }
}

impl Open {
    /// Sends output of a call, as far as its limit allows.
    fn pass(&mut self, stream: usize, writer: &FrameWriter, bytes: &[u8]) {
        let output = &mut self.output[stream];
        if output.bytes > MAX_CAPTURED_BYTES {
            return;
        }
        let mut text = std::mem::take(&mut output.rest);
        text.extend_from_slice(bytes);
        if output.bytes + text.len() > MAX_CAPTURED_BYTES {
            text.truncate(MAX_CAPTURED_BYTES - output.bytes);
            text.truncate(complete_end(&text));
            output.bytes = MAX_CAPTURED_BYTES + 1;
        } else {
            output.rest = text.split_off(complete_end(&text));
            output.bytes += text.len();
        }
        if !text.is_empty() {
            writer.send(LOG, self.id, &header(stream), &text);
        }
        if output.bytes > MAX_CAPTURED_BYTES {
            // In a frame of its own: both together might be more than one frame may hold.
            let note = format!("\n[output above {} KiB dropped]\n", MAX_CAPTURED_BYTES >> 10);
            writer.send(LOG, self.id, &header(stream), note.as_bytes());
        }
    }

    /// Sends the bytes that were kept because the rest of their character had not come.
    fn settle(&self, writer: &FrameWriter) {
        for (at, output) in self.output.iter().enumerate() {
            if !output.rest.is_empty() {
                writer.send(LOG, self.id, &header(at), &output.rest);
            }
        }
    }
}

fn header(stream: usize) -> String {
    format!("{{\"stream\":\"{}\"}}", NAMES[stream])
}

/// Where a character begins that is not complete yet, or the length.
fn complete_end(text: &[u8]) -> usize {
    for back in 1..=text.len().min(3) {
        let at = text.len() - back;
        let size = match text[at] {
            0xc0..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf7 => 4,
            0x80..=0xbf => continue,
            _ => 1,
        };
        return if size > back { at } else { text.len() };
    }
    text.len()
}
