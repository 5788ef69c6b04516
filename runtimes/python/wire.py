"""Frames of the wire protocol; no I/O. Page: spec/runtime/wire-protocol.md.

    u32 length | u8 kind | u32 id | u32 header length | header: JSON object | body: raw bytes
    `length` counts what follows it: 9 + header + body. Integers are big-endian.
"""

import json
import struct

HELLO, READY, START, STARTED, STOP, EXITED, LOG, LOADED = 1, 2, 3, 4, 5, 6, 7, 8
CALL, REPLY, CHUNK, END, CANCEL, ERROR, MORE = 16, 17, 18, 19, 20, 21, 22
PING, PONG = 32, 33

PROTOCOL_VERSION = 1
KIB = 1024
MIB = 1024 * KIB
#: Largest frame, bytes after the length word; a worker adds its function's `max_body_bytes`.
MAX_FRAME_BYTES = 16 * MIB
#: Most bytes of header and body of each kind; a worker adds its function's `max_body_bytes` to the body of a call.
LIMITS = {
    HELLO: (4 * KIB, 16), READY: (256 * KIB, 0), START: (4 * MIB, 0), STARTED: (4 * KIB, 0), STOP: (4 * KIB, 0),
    EXITED: (4 * KIB, 0), LOG: (4 * KIB, 64 * KIB), LOADED: (256 * KIB, 0), CALL: (MIB, 16 * MIB),
    REPLY: (512 * KIB, 16 * MIB), CHUNK: (4 * KIB, 256 * KIB), END: (64 * KIB, 0), CANCEL: (4 * KIB, 0),
    ERROR: (64 * KIB, 0), MORE: (4 * KIB, 0), PING: (4 * KIB, 64), PONG: (4 * KIB, 64),
}  # fmt: skip
KINDS = frozenset(LIMITS)
#: Largest body of one `reply`; a larger one is sent as chunks.
MAX_REPLY_BODY_BYTES = MIB
#: Bytes from which on a frame is read to where it stays, and a body leaves from where it is.
LARGE_BYTES = 64 * KIB
#: Memory that a large frame gets first, and how many times as much when that is full.
FIRST_ROOM_BYTES = 256 * KIB
GROWTH = 4
#: Most memory of a large frame that is kept for the next one.
KEPT_ROOM_BYTES = 2 * MIB
#: Bytes of a stream that may be under way, and of one chunk.
STREAM_WINDOW_BYTES = 256 * 1024
#: Captured output of one call and stream.
MAX_CAPTURED_OUTPUT_BYTES = 64 * 1024

PREFIX = struct.Struct('>IBII')
PREFIX_BYTES = PREFIX.size
FIXED_BYTES = 9
_LENGTH = struct.Struct('>I')
_scan = json.JSONDecoder().scan_once


class ProtocolError(Exception):
    """The peer broke the protocol: its connection is closed, nothing else."""

    def __init__(self, name, message):
        super().__init__('%s: %s' % (name, message))
        self.name = name


def encode(kind, frame_id, header=b'', body=b''):
    """One frame as bytes. `header` is JSON text as bytes, b'' for no fields."""
    header_bytes = len(header)
    return PREFIX.pack(FIXED_BYTES + header_bytes + len(body), kind, frame_id, header_bytes) + header + body


def encode_head(kind, frame_id, header, body_bytes):
    """The beginning of a frame whose body is sent behind it."""
    return PREFIX.pack(FIXED_BYTES + len(header) + body_bytes, kind, frame_id, len(header)) + header


def send(conn, frame, body=b''):
    """Writes to a blocking socket: with a body behind it both in one system call, and the body from where it is."""
    if not body:
        conn.sendall(frame)
        return
    sent = conn.sendmsg((frame, body))
    if sent < len(frame):
        conn.sendall(frame[sent:])
        sent = len(frame)
    if sent < len(frame) + len(body):
        conn.sendall(memoryview(body)[sent - len(frame) :])


def to_header(fields):
    """A dict of plain values as compact JSON bytes; lone surrogates are escaped, so every text fits."""
    return json.dumps(fields, separators=(',', ':')).encode('ascii')


def error_header(fields):
    """The header of an `error`, without what would make it too large; a message of 4096 characters always fits."""
    header = to_header(fields)
    for name in ('stack', 'hint', 'file'):
        if len(header) <= LIMITS[ERROR][0]:
            break
        fields = {key: value for key, value in fields.items() if key != name}
        header = to_header(fields)
    return header


def files_that_fit(files):
    """As many of these paths as the header of one `ready` or `loaded` takes."""
    left = LIMITS[READY][0] - KIB
    for count, path in enumerate(files):
        left -= len(json.dumps(path)) + 1
        if left < 0:
            return files[:count]
    return files


def log_pieces(data):
    """Output in pieces of at most one `log` each, cut between characters."""
    most = LIMITS[LOG][1]
    pieces = []
    at = 0
    while at < len(data):
        end = min(at + most, len(data))
        # At most three bytes of a character follow its first one; what is no text is cut anywhere.
        for back in range(4):
            if end == len(data) or data[end - back] & 0xC0 != 0x80:
                end -= back
                break
        pieces.append(data[at:end])
        at = end
    return pieces


def parse_header(header):
    """Header bytes to a dict. Raises ProtocolError BAD_HEADER when they are not a JSON object."""
    if not header:
        return {}
    try:
        text = header.decode('utf-8')
        try:
            fields, end = _scan(text, 0)
        except StopIteration:
            end = -1
        if end != len(text):
            # Not the compact form that gateways write, or no JSON at all.
            fields = json.loads(text)
    except (ValueError, RecursionError):
        raise ProtocolError('BAD_HEADER', 'frame header is not JSON') from None
    if type(fields) is not dict:
        raise ProtocolError('BAD_HEADER', 'frame header is not a JSON object')
    return fields


class Decoder:
    """Cuts a byte stream into frames; holds at most one unfinished frame plus the piece that was fed."""

    __slots__ = ('limit', '_limits', '_held', '_needed', '_large', '_kept', 'room')

    def __init__(self, max_body_bytes=0):
        self.limit = MAX_FRAME_BYTES + max_body_bytes
        self._limits = {**LIMITS, CALL: (LIMITS[CALL][0], LIMITS[CALL][1] + max_body_bytes)}
        self._held = None
        self._needed = 0
        #: Memory of the unfinished frame, which lies at its end; and of the last one, for the next when nobody looks into it any more.
        self._large = None
        self._kept = None
        #: Where the rest of a large unfinished frame belongs: what is read into it is told by `fill`. None without one.
        self.room = None

    @property
    def missing(self):
        """Bytes the unfinished frame still needs, 0 when there is none."""
        if self.room is not None:
            return max(0, self._needed - len(self._large)) + len(self.room)
        return 0 if self._held is None else self._needed - len(self._held)

    def fill(self, count):
        """So many bytes are in `room`. Returns frames as `feed` does."""
        self.room = self.room[count:]
        if len(self.room) > 0:
            return []
        if len(self._large) < self._needed:
            self._grow(self._large, min(self._needed, len(self._large) * GROWTH))
            return []
        frame = memoryview(self._large)[-self._needed :].toreadonly()
        self._kept = self._large if len(self._large) <= KEPT_ROOM_BYTES else None
        self._large = self.room = None
        _, kind, frame_id, header_bytes = PREFIX.unpack_from(frame)
        body_at = PREFIX_BYTES + header_bytes
        return [(kind, frame_id, bytes(frame[PREFIX_BYTES:body_at]), frame[body_at:])]

    def feed(self, data):
        """Adds bytes; returns the complete frames as a list of (kind, id, header bytes, body bytes). The body of a large one is
        a view of memory that nobody else has.

        Raises ProtocolError; the decoder must not be used after that."""
        if self.room is not None:
            count = min(len(data), len(self.room))
            self.room[:count] = data[:count]
            frames = self.fill(count)
            return frames if count == len(data) else frames + self.feed(data[count:])
        held = self._held
        if held is not None:
            held += data
            if len(held) < self._needed:
                return []
            self._held = None
            data = held
        frames = []
        at = 0
        end = len(data)
        needed = PREFIX_BYTES
        while end - at >= PREFIX_BYTES:
            length, kind, frame_id, header_bytes = PREFIX.unpack_from(data, at)
            if not FIXED_BYTES <= length <= self.limit:
                self._refuse(length)
            limits = self._limits.get(kind)
            header_at = at + PREFIX_BYTES
            body_at = header_at + header_bytes
            after = at + 4 + length
            if limits is None or body_at > after or header_bytes > limits[0] or after - body_at > limits[1]:
                self._refuse_frame(kind, header_bytes, after - body_at)
            if after > end:
                needed = after - at
                break
            frames.append((kind, frame_id, data[header_at:body_at], data[body_at:after]))
            at = after
        if at < end:
            if needed == PREFIX_BYTES and end - at >= 4:
                length = _LENGTH.unpack_from(data, at)[0]
                if not FIXED_BYTES <= length <= self.limit:
                    self._refuse(length)
            self._hold(data, at, needed)
        return frames

    def _hold(self, data, at, needed):
        if needed < LARGE_BYTES:
            self._held = bytearray(data[at:])
            self._needed = needed
            return
        self._needed = needed
        begun = memoryview(data)[at:]
        if self._may_use_kept(needed):
            self._large = self._kept
            self.room = memoryview(self._large)[-needed:]
            self.room[: len(begun)] = begun
            self.room = self.room[len(begun) :]
        else:
            self._grow(begun, min(needed, FIRST_ROOM_BYTES))

    def _may_use_kept(self, needed):
        if self._kept is None or len(self._kept) < needed:
            return False
        try:
            # Refused while there is a view of it, as of a body that waits or is on its way out.
            self._kept.append(self._kept.pop())
        except BufferError:
            return False
        return True

    def _grow(self, begun, size):
        """Goes on in larger memory: a length that is a lie takes no more than a few times what has come."""
        self._large = bytearray(size)
        self._large[: len(begun)] = begun
        self.room = memoryview(self._large)[len(begun) :]

    def _refuse_frame(self, kind, header_bytes, body_bytes):
        if kind not in self._limits:
            raise ProtocolError('UNKNOWN_KIND', 'unknown frame kind %d' % kind)
        if body_bytes < 0:
            raise ProtocolError('HEADER_TOO_LONG', 'frame header is longer than its frame')
        most_header, most_body = self._limits[kind]
        text = '%s of a frame of kind %d is %d bytes, above %d'
        if header_bytes > most_header:
            raise ProtocolError('HEADER_TOO_LARGE', text % ('header', kind, header_bytes, most_header))
        raise ProtocolError('BODY_TOO_LARGE', text % ('body', kind, body_bytes, most_body))

    def _refuse(self, length):
        if length < FIXED_BYTES:
            raise ProtocolError('FRAME_TOO_SHORT', 'frame length %d is below %d' % (length, FIXED_BYTES))
        raise ProtocolError('FRAME_TOO_LONG', 'frame length %d is above %d' % (length, self.limit))
