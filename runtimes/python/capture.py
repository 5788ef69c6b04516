"""What a handler prints: `sys.stdout` and `sys.stderr` of a worker. Source: decisions on captured output.

Text written during a call becomes `log` frames with the id of that call; all other text goes to the real file
descriptor, which the daemon reads."""

import io
import os
import sys
import threading

from . import wire

STREAMS = ('stdout', 'stderr')
_HEADERS = tuple(wire.to_header({'stream': name}) for name in STREAMS)
_NOTE_ROOM = 100
#: Bytes of an unfinished line that are kept.
MAX_HELD = 8192


class Output:
    """The two captured streams of one call. Only the thread that owns the connection sends; others leave their text."""

    __slots__ = ('id', 'emit', 'thread', 'dirty', 'parts', 'held', 'room', 'dropped', 'sending')

    def __init__(self, emit):
        self.emit = emit
        #: The one that owns the connection.
        self.thread = threading.get_ident()
        self.sending = False
        self.begin(0)

    def begin(self, call_id):
        """Starts the capture of a call; with id 0 nothing is captured."""
        self.id = call_id
        self.dirty = False

    def write(self, stream, text):
        if not self.dirty:
            self.parts = ([], [])
            self.held = [0, 0]
            self.room = [wire.MAX_CAPTURED_OUTPUT_BYTES - _NOTE_ROOM] * 2
            self.dropped = [0, 0]
            # Last: another thread may end the capture now.
            self.dirty = True
        data = text.encode('utf-8', 'replace') if isinstance(text, str) else bytes(text)
        room = self.room[stream]
        if len(data) > room:
            # Cut at a character, not inside one.
            kept = data[:room].decode('utf-8', 'ignore').encode('utf-8')
            self.dropped[stream] += len(data) - len(kept)
            self.room[stream] = 0
            data = kept
        else:
            self.room[stream] = room - len(data)
        if data:
            self.parts[stream].append(data)
            self.held[stream] += len(data)
            is_due = data.endswith(b'\n') or self.held[stream] > MAX_HELD
            if is_due and threading.get_ident() == self.thread and not self.sending:
                self._send(stream)

    def end(self):
        """Sends what is left. Called by the owner when the call ended and `dirty` is set."""
        for stream in (0, 1):
            dropped = self.dropped[stream]
            if dropped:
                self.parts[stream].append(b'\n[fngw] output cut, %d more bytes dropped\n' % dropped)
            self._send(stream)
        self.dirty = False

    def _send(self, stream):
        parts = self.parts[stream]
        count = len(parts)
        if count == 0:
            return
        # Other threads may append meanwhile: only what was counted is taken.
        data = b''.join(parts[:count])
        del parts[:count]
        self.held[stream] = 0
        self.sending = True
        try:
            self.emit(wire.encode(wire.LOG, self.id, _HEADERS[stream], data))
        finally:
            self.sending = False


def _nobody():
    return None


class CapturedStream(io.TextIOBase):
    """Stands in for `sys.stdout` or `sys.stderr`. `current()` gives the Output of the running call or None."""

    def __init__(self, stream):
        self._stream = stream
        self._fd = stream + 1
        self._line = ''
        self.current = _nobody
        self.buffer = _Bytes(self)
        self.name = '<%s>' % STREAMS[stream]
        self.mode = 'w'

    encoding = 'utf-8'
    errors = 'replace'
    newlines = None
    line_buffering = True

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError('write() argument must be str, not %s' % type(text).__name__)
        self.put(text)
        return len(text)

    def put(self, text):
        output = self.current()
        if output is not None and output.id != 0:
            output.write(self._stream, text)
            return
        # Outside a call, whole lines: `print` writes its arguments one by one.
        self._line += text if isinstance(text, str) else text.decode('utf-8', 'replace')
        if '\n' in self._line or len(self._line) > MAX_HELD:
            self.flush()

    def fileno(self):
        return self._fd

    def writable(self):
        return True

    def isatty(self):
        return False

    def flush(self):
        data, self._line = self._line.encode('utf-8', 'replace'), ''
        while data:
            data = data[os.write(self._fd, data) :]

    def close(self):
        self.flush()

    def reconfigure(self, **_options):
        pass


class _Bytes(io.RawIOBase):
    """The `buffer` of a captured stream: bytes go the same way as text."""

    def __init__(self, owner):
        self._owner = owner

    def write(self, data):
        data = bytes(data)
        self._owner.put(data)
        return len(data)

    def fileno(self):
        return self._owner.fileno()

    def writable(self):
        return True

    def close(self):
        pass


def install():
    """Replaces `sys.stdout` and `sys.stderr` of this process, once: handlers keep references to them."""
    sys.stdout = CapturedStream(0)
    sys.stderr = CapturedStream(1)
    return sys.stdout, sys.stderr
