"""A control connection of the daemon: a gateway that starts and stops workers."""

import os
import platform
import selectors
import socket
import time

from . import failure, wire

READ_BYTES = 65536
#: Unsent bytes above which captured output is dropped instead of kept.
MAX_UNSENT_BYTES = wire.MIB


class Control:
    def __init__(self, daemon, sock):
        self.daemon = daemon
        self.sock = sock
        self.decoder = wire.Decoder()
        self.greeted = False
        #: It connects to workers before it has a function for them.
        self.takes_ready = False
        self.closing = False
        self.unsent = bytearray()
        #: WorkerProcess by worker id.
        self.workers = {}
        sock.setblocking(False)
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        daemon.selector.register(sock, selectors.EVENT_READ, self.handle)

    @property
    def is_congested(self):
        return len(self.unsent) > MAX_UNSENT_BYTES

    def handle(self, events):
        if events & selectors.EVENT_WRITE:
            self.flush()
        if events & selectors.EVENT_READ and not self.closing:
            self.read()

    def read(self):
        try:
            data = self.sock.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b''
        if not data:
            self.close()
            return
        try:
            for kind, frame_id, header, body in self.decoder.feed(data):
                self.take(kind, frame_id, wire.parse_header(header), body)
                if self.closing:
                    return
        except wire.ProtocolError as error:
            self.refuse(str(error))

    def take(self, kind, frame_id, fields, body):
        if not self.greeted:
            self.greet(kind, fields, body)
        elif kind == wire.START:
            self.daemon.start_worker(self, frame_id, fields)
        elif kind == wire.STOP:
            grace_ms = fields.get('grace_ms')
            grace_ms = grace_ms if isinstance(grace_ms, (int, float)) and not isinstance(grace_ms, bool) else 0
            self.daemon.stop_worker(self, fields.get('worker'), grace_ms)
        elif kind == wire.PING:
            self.pong(frame_id)
        elif kind != wire.PONG:
            raise wire.ProtocolError('UNEXPECTED_KIND', 'a daemon does not take frames of kind %d' % kind)

    def greet(self, kind, fields, body):
        if kind != wire.HELLO:
            raise wire.ProtocolError('UNEXPECTED_KIND', 'the first frame must be hello, got kind %d' % kind)
        if bytes(body) != bytes((wire.PROTOCOL_VERSION,)):
            raise wire.ProtocolError('VERSION', 'protocol version %s is not known, this side speaks 1' % list(body))
        if fields.get('role') != 'control':
            raise wire.ProtocolError('ROLE', 'this socket takes connections of role control')
        self.greeted = True
        self.takes_ready = fields.get('ready_workers') is True
        ready = {'runtime': 'python', 'version': platform.python_version(), 'pid': os.getpid()}
        self.send(wire.READY, 0, ready)
        self.daemon.meet(self)

    def send(self, kind, frame_id, fields, body=b''):
        self.unsent += wire.encode(kind, frame_id, b'' if fields is None else wire.to_header(fields), body)
        self.flush()

    def pong(self, frame_id):
        reason, until = self.daemon.trouble or (None, 0)
        self.send(wire.PONG, frame_id, {'trouble': reason} if time.monotonic() < until else None)

    def send_error(self, frame_id, code, message):
        self.send(wire.ERROR, frame_id, {'code': code, 'message': failure.cut_message(message)})

    def refuse(self, message):
        """Names the error and closes, when it is sent."""
        self.send_error(0, 'protocol', message)
        self.closing = True
        if not self.unsent:
            self.close()

    def flush(self):
        try:
            while self.unsent:
                sent = self.sock.send(self.unsent)
                del self.unsent[:sent]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            # The end of the connection is noticed by the next read.
            self.unsent.clear()
        try:
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.unsent else 0)
            self.daemon.selector.modify(self.sock, wanted, self.handle)
        except (KeyError, ValueError):
            return
        if self.closing and not self.unsent:
            self.close()

    def close(self):
        self.closing = True
        try:
            self.daemon.selector.unregister(self.sock)
        except (KeyError, ValueError):
            return
        self.sock.close()
        self.daemon.control_closed(self)
