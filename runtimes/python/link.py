"""What both kinds of worker need of their connection and function."""

import os

from . import adapters, capture, failure, loader, wire

READ_BYTES = 65536
#: Exit code of a worker whose handler keeps all memory it may have.
EXIT_MEMORY = 3
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
        self.streams = capture.install()
        #: Set by a server that has an event loop.
        self.background = None

    def capture_for(self, current):
        """From now on `current()` says whose output it is that is written."""
        for stream in self.streams:
            stream.current = current

    def run_in_background(self, awaitable):
        self.background(awaitable)

    def end_if_exhausted(self):
        """Ends the process when memory ran out and was not given back: every later call would fail."""
        if self.ran_out:
            self.ran_out = False
            try:
                bytearray(SPARE_BYTES)
            except MemoryError:
                os.write(2, b'[fngw] worker ends: its memory limit is used up\n')
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
        return wire.encode(wire.ERROR, call_id, wire.to_header(fields))


def contract_frame(call_id, error):
    return wire.encode(wire.ERROR, call_id, wire.to_header({'code': 'contract', 'message': str(error)}))
