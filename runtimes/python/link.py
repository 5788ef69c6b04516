"""What both kinds of worker need of their connection and function."""

from . import adapters, failure, loader, wire

READ_BYTES = 65536


class Link:
    """What a server needs of its connection and function."""

    def __init__(self, conn, decoder, start):
        self.conn = conn
        self.decoder = decoder
        self.start = start
        self.root = start.get('root') or ''
        self.fn_dir = loader.function_dir(start)
        #: Set by a server that has an event loop.
        self.background = None

    def run_in_background(self, awaitable):
        self.background(awaitable)

    def failure_frame(self, call_id, error):
        """The `error` frame of an exception of the handler, whatever it is. Drops the exception's frames."""
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
