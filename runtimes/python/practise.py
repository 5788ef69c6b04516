"""A forked process and its daemon share memory, of which each page is copied when one of them touches it first. So while nobody waits
the process walks the way of a first call, and the daemon that of a `start`. Page: spec/runtimes/python.md."""

import os
import select
import socket
import sys
from types import SimpleNamespace

from . import adapters, loader, wire
from .link import Link, accept_gateway
from .sequential import Sequential

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_START = {
    'dir': _FOLDER,
    'entry': 'practice_handler.py',
    'root': _FOLDER,
    'callable': {'names': ['handler', 'main']},
    'context': {'runtime': 'python', 'function_name': 'practice', 'version': 'default', 'timeout_ms': 1000},
    'env': {},
}
_CALL = {'id': 'practice', 'method': 'GET', 'path': '/', 'raw_path': '/', 'params': {}, 'query': {}, 'headers': {}, 'ts': 0}
_CALLS = 2
_HELLO = wire.encode(wire.HELLO, 0, wire.to_header({'role': 'worker'}), bytes((wire.PROTOCOL_VERSION,)))


def practise_until_told(channel):
    """Practises, unless something is told already, and says whether it did."""
    if select.select([channel], [], [], 0)[0]:
        return False
    practise_safely()
    return True


def practise_safely():
    """A fault of it is no reason to serve nothing."""
    before = set(sys.modules)
    try:
        practise()
    except Exception:
        pass
    finally:
        # Of the handler alone: what else was loaded for the first time, calls need too.
        for name in set(sys.modules) - before:
            if name.startswith('fn_'):
                del sys.modules[name]


def practise():
    """Greets, loads a function and calls it over a connection of its own."""
    gateway, conn = socket.socketpair()
    kept_path, kept_streams = sys.path[:], (sys.stdout, sys.stderr)
    try:
        gateway.sendall(_HELLO + wire.encode(wire.START, 0, wire.to_header(_START)))
        link = Link(*accept_gateway(SimpleNamespace(accept=lambda: (conn, None)), None))
        loader.prepare_process(link.start)
        server = Sequential(link, adapters.make_target(link.start, None))
        wire.files_that_fit(link.loaded.take_new())
        for call_id in range(1, _CALLS + 1):
            gateway.sendall(wire.encode(wire.CALL, call_id, wire.to_header(_CALL)))
            server.read()
            server.run(*server.waiting.popleft())
            gateway.recv(65536)
    finally:
        sys.path[:] = kept_path
        sys.stdout, sys.stderr = kept_streams
        gateway.close()
        conn.close()
