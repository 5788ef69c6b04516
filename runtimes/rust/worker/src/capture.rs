//! What user code prints. While exactly one call is open, what is written to descriptors 1 and 2 belongs to it; at other
//! times nobody can tell, and it goes on to where the process's output went before.

use crate::system;
use crate::wire::{lock, FrameWriter, LOG};
use std::io::Write;
use std::sync::{Arc, Mutex};

/// Captured output of one call and stream that is passed on.
const MAX_CAPTURED_BYTES: usize = 64 << 10;

pub struct Capture {
    state: Mutex<State>,
}

struct State {
    writer: Arc<FrameWriter>,
    streams: [Stream; 2],
    /// Ids of the open calls.
    open: Vec<u32>,
    buffer: Vec<u8>,
}

struct Stream {
    name: &'static str,
    /// End of the pipe that stands in for the descriptor.
    pipe: i32,
    /// Where it led before.
    outside: i32,
    /// Of the one open call: bytes so far, and the beginning of a character whose rest has not come yet.
    bytes: usize,
    rest: Vec<u8>,
}

impl Capture {
    pub fn new(writer: Arc<FrameWriter>) -> Option<Self> {
        let stream = |name, fd| {
            system::redirect(fd).map(|(pipe, outside)| Stream { name, pipe, outside, bytes: 0, rest: Vec::new() })
        };
        let streams = [stream("stdout", 1)?, stream("stderr", 2)?];
        let state = State { writer, streams, open: Vec::new(), buffer: vec![0; 16 << 10] };
        Some(Capture { state: Mutex::new(state) })
    }

    /// Reads what is written while nobody looks for it, so that no writer waits.
    pub fn follow(&self) {
        let pipes = {
            let state = lock(&self.state);
            [state.streams[0].pipe, state.streams[1].pipe]
        };
        loop {
            system::wait_readable(&pipes, -1);
            lock(&self.state).drain();
        }
    }

    /// Called before a call runs; output up to here belongs to whoever was alone until now.
    pub fn begin(&self, id: u32) {
        let mut state = lock(&self.state);
        if state.open.len() <= 1 {
            state.settle();
        }
        state.open.push(id);
    }

    /// Called before a call's last frame; afterwards its output is complete.
    pub fn end(&self, id: u32) {
        // What `print!` holds back until the end of a line.
        let _ = std::io::stdout().flush();
        let mut state = lock(&self.state);
        if state.open.len() <= 2 {
            state.settle();
        }
        state.open.retain(|open| *open != id);
    }

    /// The last chance before the process is gone.
    pub fn flush(&self) {
        if let Ok(mut state) = self.state.try_lock() {
            state.settle();
        }
    }
}

impl State {
    fn alone(&self) -> Option<u32> {
        if self.open.len() == 1 {
            Some(self.open[0])
        } else {
            None
        }
    }

    fn drain(&mut self) {
        let alone = self.alone();
        for stream in &mut self.streams {
            loop {
                let count = system::read_some(stream.pipe, &mut self.buffer);
                if count == 0 {
                    break;
                }
                stream.pass(&self.writer, alone, &self.buffer[..count]);
            }
        }
    }

    /// Ends what the one open call has written so far.
    fn settle(&mut self) {
        self.drain();
        let alone = self.alone();
        for stream in &mut self.streams {
            let rest = std::mem::take(&mut stream.rest);
            if let (Some(id), false) = (alone, rest.is_empty()) {
                self.writer.send(LOG, id, &stream.header(), &rest);
            }
            stream.bytes = 0;
        }
    }
}

impl Stream {
    fn header(&self) -> String {
        format!("{{\"stream\":\"{}\"}}", self.name)
    }

    fn pass(&mut self, writer: &FrameWriter, alone: Option<u32>, bytes: &[u8]) {
        let id = match alone {
            None => return system::write_all(self.outside, bytes),
            Some(id) => id,
        };
        if self.bytes > MAX_CAPTURED_BYTES {
            return;
        }
        let mut text = std::mem::take(&mut self.rest);
        text.extend_from_slice(bytes);
        if self.bytes + text.len() > MAX_CAPTURED_BYTES {
            text.truncate(MAX_CAPTURED_BYTES - self.bytes);
            text.truncate(complete_end(&text));
            text.extend_from_slice(format!("\n[output above {} KiB dropped]\n", MAX_CAPTURED_BYTES >> 10).as_bytes());
            self.bytes = MAX_CAPTURED_BYTES + 1;
        } else {
            self.rest = text.split_off(complete_end(&text));
            self.bytes += text.len();
        }
        if !text.is_empty() {
            writer.send(LOG, id, &self.header(), &text);
        }
    }
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
