"""A forked process walks the way of a first call once while it waits: what that touches is copied from the daemon's memory then, and
not while a caller waits. Page: spec/runtimes/python.md."""

import os
import select
import socket
import sys
from types import SimpleNamespace

from . import adapters, wire
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


def practise_until_told(channel):
    """Practises, unless there is a function to serve already. A fault of it is no reason to serve nothing."""
    if select.select([channel], [], [], 0)[0]:
        return
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
    """Loads a function and calls it over a connection of its own."""
    gateway, conn = socket.socketpair()
    try:
        # Without the capture of output: what is written belongs to nobody.
        link = SimpleNamespace(
            conn=conn,
            start=_START,
            decoder=wire.Decoder(0),
            capture_for=lambda current: None,
            loaded_frame=lambda: None,
            ran_out=False,
        )
        server = Sequential(link, adapters.make_target(_START, None))
        for call_id in range(1, _CALLS + 1):
            gateway.sendall(wire.encode(wire.CALL, call_id, wire.to_header(_CALL)))
            server.read()
            server.run(*server.waiting.popleft())
            gateway.recv(65536)
    finally:
        gateway.close()
        conn.close()
