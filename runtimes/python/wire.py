"""Frames of the wire protocol; no I/O. Page: spec/runtime/wire-protocol.md.

    u32 length | u8 kind | u32 id | u32 header length | header: JSON object | body: raw bytes
    `length` counts what follows it: 9 + header + body. Integers are big-endian.
"""

import json
import struct

HELLO, READY, START, STARTED, STOP, EXITED, LOG = 1, 2, 3, 4, 5, 6, 7
CALL, REPLY, CHUNK, END, CANCEL, ERROR, MORE = 16, 17, 18, 19, 20, 21, 22
PING, PONG = 32, 33
KINDS = frozenset((*range(HELLO, LOG + 1), *range(CALL, MORE + 1), PING, PONG))

PROTOCOL_VERSION = 1
MIB = 1024 * 1024
#: Largest frame, bytes after the length word; a worker adds its function's `max_body_bytes`.
MAX_FRAME_BYTES = 16 * MIB
#: Largest body of one `reply`; a larger one is sent as chunks.
MAX_REPLY_BODY_BYTES = MIB
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


def to_header(fields):
    """A dict of plain values as compact JSON bytes; lone surrogates are escaped, so every text fits."""
    return json.dumps(fields, separators=(',', ':')).encode('ascii')


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

    __slots__ = ('limit', '_held', '_needed')

    def __init__(self, max_body_bytes=0):
        self.limit = MAX_FRAME_BYTES + max_body_bytes
        self._held = None
        self._needed = 0

    @property
    def missing(self):
        """Bytes the unfinished frame still needs, 0 when there is none."""
        return 0 if self._held is None else self._needed - len(self._held)

    def feed(self, data):
        """Adds bytes; returns the complete frames as a list of (kind, id, header bytes, body bytes).

        Raises ProtocolError; the decoder must not be used after that."""
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
            if kind not in KINDS:
                raise ProtocolError('UNKNOWN_KIND', 'unknown frame kind %d' % kind)
            header_at = at + PREFIX_BYTES
            body_at = header_at + header_bytes
            after = at + 4 + length
            if body_at > after:
                raise ProtocolError('HEADER_TOO_LONG', 'frame header is longer than its frame')
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
            self._held = bytearray(data[at:])
            self._needed = needed
        return frames

    def _refuse(self, length):
        if length < FIXED_BYTES:
            raise ProtocolError('FRAME_TOO_SHORT', 'frame length %d is below %d' % (length, FIXED_BYTES))
        raise ProtocolError('FRAME_TOO_LONG', 'frame length %d is above %d' % (length, self.limit))
