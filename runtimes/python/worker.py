"""A worker: one process that serves one function over one connection. Page: spec/runtime/wire-protocol.md.

    forked by daemon.py -> run() -> accept -> hello, start -> load -> ready -> calls, until the gateway hangs up
"""

import atexit
import sys
import types

from . import adapters, address, failure, loader, wire
from .link import Link, accept_gateway, await_gateway, refuse
from .multiplexed import Multiplexed
from .sequential import Sequential

EXIT_OK, EXIT_LOAD_FAILED, EXIT_PROTOCOL = 0, 1, 2


def run(listener, socket_path, memory_mb, gateway, is_ahead):
    """Serves the function that the gateway names, until it hangs up. Returns the exit code. `gateway` is who asked for the
    worker, as the system tells peers of sockets; None where it does not. `is_ahead`: it greets, and has no function yet."""

    def leave():
        listener.close()
        address.unlink(socket_path)

    if is_ahead:
        met = await_gateway(listener, gateway, leave)
        if met is None:
            return EXIT_OK
        conn, decoder, start = met
    else:
        conn, decoder, start = accept_gateway(listener, gateway)
        leave()
    start['memory_mb'] = memory_mb or None
    sys.modules['__main__'] = types.ModuleType('__main__')
    link = Link(conn, decoder, start)
    try:
        loader.prepare_process(start)
        debug = start.get('debug')
        if debug is not None:
            announce_debugger(conn, debug)
        target = adapters.make_target(start, link.run_in_background)
    except failure.LoadError as error:
        refuse(conn, {**error.fields, 'code': 'load'})
        return EXIT_LOAD_FAILED
    server = (Multiplexed if target.needs_loop else Sequential)(link, target)
    ready = {'max_inflight': 0 if target.is_async else 1, 'files': wire.files_that_fit(link.loaded.take_new())}
    try:
        conn.sendall(wire.encode(wire.READY, 0, wire.to_header(ready)))
        server.serve()
    except wire.ProtocolError as error:
        refuse(conn, {'code': 'protocol', 'message': str(error)})
        return EXIT_PROTOCOL
    except (BrokenPipeError, ConnectionResetError):
        pass
    atexit._run_exitfuncs()
    for stream in link.streams:
        stream.flush()
    return EXIT_OK


def announce_debugger(conn, debug):
    """Reports the address of the debugger to the gateway before the function is loaded. Raises LoadError, OSError."""
    from .debugger import open_debugger

    opened = {'port': open_debugger(debug.get('path'))}
    conn.sendall(wire.encode(wire.LOADED, 0, wire.to_header({'files': [], 'debugger': opened})))
