"""The worker's end of its connection: the greeting, and what both kinds of server need of connection and function."""

import os
import socket

from . import adapters, address, capture, failure, loader, wire
from .sources import LoadedFiles

READ_BYTES = 65536
#: Seconds a connection has to say what it wants; only then is the next one looked at.
HANDSHAKE_SECONDS = 10
#: Seconds a worker that gives up waits for the gateway to read why.
LINGER_SECONDS = 2
#: What the system may hold of answers that the gateway has not read yet; it gives less where `net.core.wmem_max` is less.
SENT_BYTES = 2 * wire.MIB
#: Exit code of a worker whose handler keeps all memory it may have; one that handlers hardly use themselves.
EXIT_MEMORY = 99
#: What a call needs at least to have a chance.
SPARE_BYTES = 4 * wire.MIB


class Link:
    """What a server needs of its connection and function."""

    def __init__(self, conn, decoder, start):
        self.conn = conn
        self.decoder = decoder
        self.start = start
        self.root = start.get('root') or ''
        self.fn_dir = loader.function_dir(start)
        self.ran_out = False
        self.loaded = LoadedFiles()
        self.is_watched = start.get('production') is not True
        self.streams = capture.install()
        #: Set by a server that has an event loop.
        self.background = None

    def read(self, flags=0):
        """Reads once; returns the frames that are complete now, None when the gateway has hung up. Raises ProtocolError, OSError."""
        decoder = self.decoder
        if decoder.room is not None:
            count = self.conn.recv_into(decoder.room, 0, flags)
            return decoder.fill(count) if count > 0 else None
        data = self.conn.recv(READ_BYTES, flags)
        return decoder.feed(data) if data else None

    def capture_for(self, current):
        """From now on `current()` says whose output it is that is written."""
        for stream in self.streams:
            stream.current = current

    def run_in_background(self, awaitable):
        self.background(awaitable)

    def loaded_frame(self):
        """The `loaded` frame of source files that calls have loaded since the last look, None when there are none. Only
        where somebody edits them: in development."""
        if not (self.is_watched and self.loaded.has_grown()):
            return None
        files = self.loaded.take_new()
        return wire.encode(wire.LOADED, 0, wire.to_header({'files': wire.files_that_fit(files)})) if files else None

    def end_if_exhausted(self):
        """Ends the process when memory ran out and was not given back: every later call would fail."""
        if self.ran_out:
            self.ran_out = False
            try:
                bytearray(SPARE_BYTES)
            except MemoryError:
                os._exit(EXIT_MEMORY)

    def failure_frame(self, call_id, error):
        """The `error` frame of an exception of the handler, whatever it is. Drops the exception's frames."""
        self.ran_out = isinstance(error, MemoryError)
        try:
            if isinstance(error, adapters.UnsupportedAdapter):
                fields = {'code': 'exception', 'message': 'invoke.adapter unsupported: %s' % error}
            else:
                fields = failure.describe('exception', error, self.root, self.fn_dir)
        except (MemoryError, RecursionError):
            error.__traceback__ = None
            fields = {'code': 'exception', 'message': type(error).__name__}
        if self.ran_out:
            fields['message'] = '%s (%s)' % (failure.out_of_memory(self.start['memory_mb']), fields['message'])
        return wire.encode(wire.ERROR, call_id, wire.error_header(fields))


def contract_frame(call_id, error):
    return wire.encode(wire.ERROR, call_id, wire.error_header({'code': 'contract', 'message': failure.to_message(error)}))


def accept_gateway(listener, gateway):
    """(connection, decoder, fields of `start`) of the first peer that speaks the protocol and is the process that asked for
    the worker, where the system tells who a peer is."""
    while True:
        conn = _accept(listener, gateway)
        said = _try(conn, lambda: (check_hello(*read_frame(conn)), read_start(conn)))
        if said is not None:
            conn.settimeout(None)
            return (conn, *said[1])


def await_gateway(listener, gateway, leave):
    """The same of a gateway that greets long before it has a function; `leave` is called when it has greeted, and then nobody else is
    accepted. None when it hangs up instead."""
    conn = None
    while conn is None:
        greeting = _accept(listener, gateway)
        conn = _try(greeting, lambda: check_hello(*read_frame(greeting)) or greeting)
    leave()
    conn.settimeout(None)
    said = _try(conn, lambda: read_start(conn))
    return said and (conn, *said)


def _accept(listener, gateway):
    """A connection of the gateway, or of anybody where the system does not tell who a peer is."""
    while True:
        conn, _ = listener.accept()
        if gateway is None or address.peer_of(conn) == gateway:
            break
        # Without a word: a stranger who does not hang up must not keep the gateway waiting.
        conn.close()
    if conn.family == getattr(socket, 'AF_UNIX', None):
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENT_BYTES)
    else:
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    conn.settimeout(HANDSHAKE_SECONDS)
    return conn


def _try(conn, read):
    """What `read` returns; None, and the connection closed, when the peer breaks the protocol or hangs up."""
    try:
        return read()
    except wire.ProtocolError as error:
        refuse(conn, {'code': 'protocol', 'message': str(error)})
    except OSError:
        conn.close()
    return None


def read_start(conn):
    """(decoder of what follows, fields of `start`). Raises ProtocolError, OSError."""
    kind, _, header, _ = read_frame(conn)
    if kind != wire.START:
        raise wire.ProtocolError('UNEXPECTED_KIND', 'start must follow hello, got kind %d' % kind)
    fields = check_start(wire.parse_header(header))
    context = fields.get('context')
    max_body = context.get('max_body_bytes') if isinstance(context, dict) else None
    return wire.Decoder(max_body if isinstance(max_body, int) and max_body > 0 else 0), fields


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


def check_start(fields):
    """Refuses a `start` without the names to look for: which ones a function has is the gateway's to say."""
    callable_fields = fields.get('callable')
    names = callable_fields.get('names') if isinstance(callable_fields, dict) else None
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise wire.ProtocolError('BAD_HEADER', 'start must have callable.names, a list of symbols to look for')
    return fields


def refuse(conn, fields):
    """Tells why on id 0 and closes when the peer has read it."""
    try:
        conn.settimeout(LINGER_SECONDS)
        conn.sendall(wire.encode(wire.ERROR, 0, wire.error_header(fields)))
        conn.shutdown(socket.SHUT_WR)
        # Closing with unread calls in the buffer would reset the connection, perhaps before the reason is read.
        while conn.recv(READ_BYTES):
            pass
    except OSError:
        pass
    conn.close()
