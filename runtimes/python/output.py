"""What a worker writes to its descriptors 1 and 2, on its way to the gateway: bounded, and always read."""

import codecs
import os
import selectors
import time

from . import wire

READ_BYTES = 65536
#: Bytes of one stream that are passed on within a window; the rest is read and dropped.
WINDOW_BYTES = 256 * 1024
WINDOW_SECONDS = 1.0
#: Seconds between two reads of a stream that is over its share: it costs others nothing.
PAUSE_SECONDS = 0.005
#: Bytes read of what a dead worker left in its pipe; a pipe holds no more unless it was enlarged.
MAX_RESIDUE_BYTES = wire.MIB


class OutputPipe:
    def __init__(self, daemon, process, fd, stream):
        self.daemon = daemon
        self.process = process
        self.fd = fd
        self.header = {'stream': stream, 'worker': process.id}
        self.decoder = codecs.getincrementaldecoder('utf-8')('replace')
        self.window_end = 0.0
        self.passed = 0
        self.dropped = 0
        self.paused = False
        os.set_blocking(fd, False)
        daemon.selector.register(fd, selectors.EVENT_READ, self.handle)

    def handle(self, _events):
        if self.fd is None:
            # Closed by an event that came in the same round.
            return
        data = self.read()
        if data is None:
            return
        if not data:
            self.finish()
            return
        self.take(data)
        if self.dropped:
            self.pause()

    def read(self):
        """Bytes, b'' at the end, None when there is nothing now."""
        try:
            return os.read(self.fd, READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            return b''

    def take(self, data):
        now = time.monotonic()
        if now >= self.window_end:
            self.tell_dropped()
            self.window_end = now + WINDOW_SECONDS
            self.passed = 0
        if self.passed + len(data) > WINDOW_BYTES or self.process.control.is_congested:
            self.dropped += len(data)
            return
        self.passed += len(data)
        self.send(self.decoder.decode(data))

    def pause(self):
        self.paused = True
        self.daemon.selector.unregister(self.fd)
        self.daemon.after(PAUSE_SECONDS, self.resume)

    def resume(self):
        if self.fd is not None and self.paused:
            self.paused = False
            self.daemon.selector.register(self.fd, selectors.EVENT_READ, self.handle)
            if time.monotonic() >= self.window_end:
                self.tell_dropped()

    def tell_dropped(self):
        if self.dropped:
            self.send('\n[fngw] output too fast, %d bytes dropped\n' % self.dropped)
            self.dropped = 0
            self.decoder.reset()

    def send(self, text):
        if self.process.control in self.daemon.controls:
            for piece in wire.log_pieces(text.encode('utf-8', 'replace')):
                self.process.control.send(wire.LOG, 0, self.header, piece)

    def finish(self):
        """Passes on what is left and closes. Others may still hold the other end; they are not waited for."""
        if self.fd is None:
            return
        left = MAX_RESIDUE_BYTES
        while left > 0:
            data = self.read()
            if not data:
                break
            left -= len(data)
            self.take(data)
        self.send(self.decoder.decode(b'', final=True))
        self.tell_dropped()
        self.close()

    def close(self):
        if self.fd is None:
            return
        if not self.paused:
            self.daemon.selector.unregister(self.fd)
        os.close(self.fd)
        self.fd = None
