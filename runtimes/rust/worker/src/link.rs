//! How a worker and its gateway find each other, and what the worker is told first.

use crate::event::Function;
use crate::wire::{self, Frame, FrameReader, FrameWriter};
use crate::failure::fail;
use crate::system;
use serde_json::{json, Map, Value};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::io::{AsRawFd, FromRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::exit;
use std::sync::mpsc::{channel, Sender};
use std::thread;

/// A socket is its owner's alone from the moment it has a name.
const SOCKET_UMASK: u32 = 0o177;
/// Descriptor of a pipe whose other end the daemon holds: it closes when the daemon is gone.
const LIFELINE: i32 = 3;

enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

fn listen(address: &str) -> std::io::Result<(Listener, String)> {
    match address.strip_prefix("tcp://") {
        None => Ok((Listener::Unix(system::with_umask(SOCKET_UMASK, || UnixListener::bind(address))?), format!("unix:{}", address))),
        Some(host) => {
            let listener = TcpListener::bind(host)?;
            let port = listener.local_addr()?.port();
            let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
            Ok((Listener::Tcp(listener), format!("tcp://{}:{}", name, port)))
        }
    }
}

type Peer = (FrameReader, Box<dyn Write + Send>);

pub struct Meeting {
    pub reader: FrameReader,
    pub writer: FrameWriter,
    /// The pipe that closes when the daemon is gone, where nobody looks at it yet.
    pub lifeline: Option<i32>,
}

/// Waits for the first peer that greets, which is the gateway. A peer that does not greet is dropped, and the next one has its turn.
pub fn meet() -> Meeting {
    let mut args = std::env::args().skip(1);
    let address = match (args.next().as_deref(), args.next()) {
        (Some("--socket"), Some(address)) => address,
        _ => fail("this program is a function of a gateway, which starts it with --socket"),
    };
    let (sender, greeted) = channel::<Peer>();
    system::keep_from_children(LIFELINE);
    let lifeline = match address.strip_prefix("fd:") {
        // Its gateway has begun to greet: the wait for a peer ends by itself.
        Some(number) => {
            match inherited(number) {
                Ok((reader, target)) => greet(reader, target, sender),
                Err(error) => fail(&format!("worker has no connection {}: {}", address, error)),
            }
            Some(LIFELINE)
        }
        None => {
            let (listener, uri) = match listen(&address) {
                Ok(listening) => listening,
                Err(error) => fail(&format!("worker cannot listen on {}: {}", address, error)),
            };
            follow_daemon(&uri);
            thread::spawn(move || accept(listener, sender));
            None
        }
    };
    match greeted.recv() {
        Ok((reader, target)) => Meeting { reader, writer: FrameWriter::new(target), lifeline },
        Err(_) => fail("worker has no gateway"),
    }
}

/// The connection that the daemon accepted for this process.
fn inherited(number: &str) -> std::io::Result<Peer> {
    let descriptor = number.parse().map_err(|_| std::io::ErrorKind::InvalidInput)?;
    system::keep_from_children(descriptor);
    let stream = unsafe { UnixStream::from_raw_fd(descriptor) };
    system::make_roomy(descriptor);
    Ok((FrameReader::new(stream.try_clone()?.into()), Box::new(stream)))
}

/// Tells where it listens, and ends the worker with its daemon.
fn follow_daemon(uri: &str) {
    let mut lifeline = unsafe { File::from_raw_fd(LIFELINE) };
    if lifeline.write_all(format!("{}\n", uri).as_bytes()).is_err() {
        fail("worker cannot tell its socket");
    }
    thread::spawn(move || {
        let _ = lifeline.read(&mut [0; 1]);
        exit(0)
    });
}

fn accept(listener: Listener, greeted: Sender<Peer>) {
    let take = || -> std::io::Result<Peer> {
        Ok(match &listener {
            Listener::Unix(listener) => {
                let stream: UnixStream = listener.accept()?.0;
                system::make_roomy(stream.as_raw_fd());
                (FrameReader::new(stream.try_clone()?.into()), Box::new(stream))
            }
            Listener::Tcp(listener) => {
                let stream: TcpStream = listener.accept()?.0;
                stream.set_nodelay(true)?;
                (FrameReader::new(stream.try_clone()?.into()), Box::new(stream))
            }
        })
    };
    while let Ok((reader, target)) = take() {
        let greeted = greeted.clone();
        thread::spawn(move || greet(reader, target, greeted));
    }
}

fn greet(mut reader: FrameReader, mut target: Box<dyn Write + Send>, greeted: Sender<Peer>) {
    let problem = match reader.next() {
        Ok(Some(frame)) if is_worker_role(&frame) => match frame.body[..] {
            [wire::PROTOCOL_VERSION] => None,
            _ => Some("this protocol version is not spoken here"),
        },
        _ => Some("this socket serves one gateway, which begins with hello in the role worker"),
    };
    if let Some(message) = problem {
        let mut frame = Vec::new();
        wire::append_frame(&mut frame, wire::ERROR, 0, &json!({ "code": "protocol", "message": message }).to_string(), b"");
        let _ = target.write_all(&frame);
        return;
    }
    reader.only = None;
    let _ = greeted.send((reader, target));
}

fn is_worker_role(frame: &Frame) -> bool {
    frame.fields().map_or(false, |fields| fields.get("role").and_then(Value::as_str) == Some("worker"))
}

/// Learns the function; the connection is of no use without.
pub fn start(reader: &mut FrameReader) -> Result<Function, String> {
    let fields: Map<String, Value> = match reader.next() {
        Ok(Some(frame)) if frame.kind == wire::START => frame.fields()?,
        _ => return Err("start must follow hello".into()),
    };
    let function = Function::new(fields);
    reader.max_body_bytes = function.max_body_bytes();
    if let Value::Object(env) = &function.env {
        for (name, value) in env {
            if let (Some(value), false) = (value.as_str(), name.is_empty() || name.contains('=')) {
                std::env::set_var(name, value);
            }
        }
    }
    // Relative paths of a handler mean its own folder.
    std::env::set_current_dir(&function.dir).map_err(|error| format!("cannot enter the function's folder: {}", error))?;
    std::env::remove_var("PWD");
    if !function.adapter.is_empty() && function.adapter != "native" {
        return Err(format!("invoke.adapter unsupported for rust: {}", function.adapter));
    }
    Ok(function)
}
