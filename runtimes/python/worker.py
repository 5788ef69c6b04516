"""A worker: one process that serves one function over one connection. Page: spec/runtime/wire-protocol.md.

    forked by daemon.py -> run() -> accept -> hello, start -> load -> ready -> calls, until the gateway hangs up
"""

import atexit
import ctypes
import faulthandler
import os
import resource
import signal
import socket
import sys
import types

from . import adapters, failure, loader, wire
from .link import READ_BYTES, Link
from .multiplexed import Multiplexed
from .sequential import Sequential

#: Seconds a connection has to say what it wants; only then is the next one looked at.
HANDSHAKE_SECONDS = 10
#: Seconds a worker that failed to load waits for the gateway to read why.
LINGER_SECONDS = 2

EXIT_OK, EXIT_LOAD_FAILED, EXIT_PROTOCOL = 0, 1, 2

_PR_SET_PDEATHSIG = 1


def load_prctl():
    """The prctl function of this system, None where there is none. Looked up once, before any fork."""
    if not sys.platform.startswith('linux'):
        return None
    try:
        return ctypes.CDLL(None, use_errno=True).prctl
    except (OSError, AttributeError):
        return None


def guard(daemon_pid, prctl):
    """Forks the worker proper and returns in it. Its parent serves it alone, leads its process group, and ends with its
    status: a handler that kills its parent hits nobody else."""
    os.setsid()
    die_with(daemon_pid, prctl)
    signal.set_wakeup_fd(-1)
    # What is sent to the group is for the worker.
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    guard_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        die_with(guard_pid, prctl)
        return
    close_all_but(())
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(guard_pid, number)
    os._exit(os.WEXITSTATUS(status))


def die_with(parent_pid, prctl):
    """The kernel kills this process when its parent ends."""
    if prctl is None:
        return
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(EXIT_OK)


def isolate(listener, out_fd, err_fd, memory_mb):
    """Makes a freshly forked process a worker: own descriptors, default signals, limits."""
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(out_fd, 1)
    os.dup2(err_fd, 2)
    close_all_but((0, 1, 2, listener.fileno()))
    os.umask(0o022)
    limit_memory(memory_mb)
    try:
        with open('/proc/self/oom_score_adj', 'w') as file:
            file.write('1000')
    except OSError:
        pass
    faulthandler.enable(2)


def close_all_but(kept):
    """Closes every descriptor but these: none of the daemon's may reach user code."""
    try:
        numbers = [int(name) for name in os.listdir('/dev/fd' if sys.platform == 'darwin' else '/proc/self/fd')]
    except OSError:
        numbers = range(3, 4096)
    for number in numbers:
        if number not in kept:
            try:
                os.close(number)
            except OSError:
                pass


def limit_memory(memory_mb):
    """Bounds private writable memory, so that a hog gets MemoryError. RLIMIT_DATA counts what is really writable;
    RLIMIT_AS would count address space that thread arenas and libraries merely reserve."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory_mb <= 0:
        return
    which = resource.RLIMIT_DATA if sys.platform.startswith('linux') else resource.RLIMIT_AS
    size = memory_mb * wire.MIB
    try:
        resource.setrlimit(which, (size, size))
    except (ValueError, OSError):
        pass


def run(listener, socket_path, memory_mb):
    """Serves the function that the gateway names, until it hangs up. Returns the exit code."""
    conn, decoder, start = accept_gateway(listener)
    listener.close()
    if socket_path is not None:
        try:
            os.unlink(socket_path)
        except OSError:
            pass
    start['memory_mb'] = memory_mb or None
    sys.modules['__main__'] = types.ModuleType('__main__')
    link = Link(conn, decoder, start)
    try:
        loader.prepare_process(start)
        target = adapters.make_target(start, link.run_in_background)
    except failure.LoadError as error:
        return refuse(conn, {**error.fields, 'code': 'load'}, EXIT_LOAD_FAILED)
    server = (Multiplexed if target.needs_loop else Sequential)(link, target)
    ready = {'max_inflight': 0 if target.is_async else 1, 'files': loader.loaded_files(start)}
    try:
        conn.sendall(wire.encode(wire.READY, 0, wire.to_header(ready)))
        server.serve()
    except wire.ProtocolError as error:
        return refuse(conn, {'code': 'protocol', 'message': str(error)}, EXIT_PROTOCOL)
    except (BrokenPipeError, ConnectionResetError):
        pass
    atexit._run_exitfuncs()
    for stream in link.streams:
        stream.flush()
    return EXIT_OK


def accept_gateway(listener):
    """(connection, decoder, fields of `start`) of the first peer that speaks the protocol."""
    while True:
        conn, _ = listener.accept()
        if conn.family != getattr(socket, 'AF_UNIX', None):
            conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        conn.settimeout(HANDSHAKE_SECONDS)
        try:
            check_hello(*read_frame(conn))
            kind, _, header, _ = read_frame(conn)
            if kind != wire.START:
                raise wire.ProtocolError('UNEXPECTED_KIND', 'start must follow hello, got kind %d' % kind)
            fields = wire.parse_header(header)
        except wire.ProtocolError as error:
            refuse(conn, {'code': 'protocol', 'message': str(error)}, EXIT_PROTOCOL)
            continue
        except OSError:
            conn.close()
            continue
        conn.settimeout(None)
        context = fields.get('context')
        max_body = context.get('max_body_bytes') if isinstance(context, dict) else None
        decoder = wire.Decoder(max_body if isinstance(max_body, int) and max_body > 0 else 0)
        return conn, decoder, fields


def read_frame(conn):
    """Reads one frame and nothing behind it: how large the frames behind `start` may be is in `start`."""
    decoder = wire.Decoder()
    frames = decoder.feed(conn.recv(wire.PREFIX_BYTES) or hung_up())
    while not frames:
        frames = decoder.feed(conn.recv(min(decoder.missing, wire.MIB)) or hung_up())
    return frames[0]


def hung_up():
    raise ConnectionResetError('closed during the handshake')


def check_hello(kind, _id, header, body):
    """Refuses a peer that does not say `hello` in a known version."""
    if kind != wire.HELLO:
        raise wire.ProtocolError('UNEXPECTED_KIND', 'the first frame must be hello, got kind %d' % kind)
    if bytes(body) != bytes((wire.PROTOCOL_VERSION,)):
        raise wire.ProtocolError('VERSION', 'protocol version %s is not known, this side speaks 1' % list(body))
    if wire.parse_header(header).get('role') != 'worker':
        raise wire.ProtocolError('ROLE', 'this socket takes connections of role worker')


def refuse(conn, fields, code):
    """Tells why on id 0 and closes when the peer has read it. Returns `code`."""
    try:
        conn.settimeout(LINGER_SECONDS)
        conn.sendall(wire.encode(wire.ERROR, 0, wire.to_header(fields)))
        conn.shutdown(socket.SHUT_WR)
        # Closing with unread calls in the buffer would reset the connection, perhaps before the reason is read.
        while conn.recv(READ_BYTES):
            pass
    except OSError:
        pass
    conn.close()
    return code
