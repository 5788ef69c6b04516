"""One call at a time, in the order they came: plain functions. A blocking read-call-write loop."""

import asyncio
import contextvars
from collections import deque
from socket import MSG_DONTWAIT

from . import capture, failure, wire
from .envelope import ContractError, Stream, streaming, to_piece, to_reply
from .event import EventMaker, add_body, given_of
from .link import contract_frame

_NOTHING = object()


class Canceled(Exception):
    """Nobody waits for the running call any more."""


class HungUp(Exception):
    """The gateway closed the connection."""


class Sequential:
    def __init__(self, link, target):
        self.link = link
        self.conn = link.conn
        self.call = target.call
        self.to_event = EventMaker(link.start).to_event
        self.output = output = capture.Output(link.conn.sendall)
        link.capture_for(lambda: output)
        self.waiting = deque()
        self.running = 0
        self.canceled = False
        self.credit = 0
        self.loop = None

    def serve(self):
        """Runs calls until the gateway hangs up. Raises ProtocolError, OSError."""
        waiting = self.waiting
        try:
            while True:
                while waiting:
                    self.run(*waiting.popleft())
                self.read()
        except HungUp:
            return

    def read(self, flags=0):
        """Reads what is there, waiting for it unless the flags say not to."""
        frames = self.link.read(flags)
        if frames is None:
            raise HungUp
        self.take(frames)

    def take(self, frames):
        for frame in frames:
            kind = frame[0]
            if kind == wire.CALL:
                self.waiting.append(frame)
            elif kind == wire.CANCEL:
                self.cancel(frame[1])
            elif kind == wire.MORE:
                if frame[1] == self.running:
                    granted = wire.parse_header(frame[2]).get('bytes')
                    if isinstance(granted, int) and granted > 0:
                        self.credit = min(self.credit + granted, wire.STREAM_WINDOW_BYTES)
            elif kind == wire.PING:
                self.conn.sendall(wire.encode(wire.PONG, frame[1]))
            elif kind != wire.PONG:
                raise wire.ProtocolError('UNEXPECTED_KIND', 'a worker does not take frames of kind %d' % kind)

    def cancel(self, call_id):
        if call_id == self.running:
            self.canceled = True
            return
        for frame in self.waiting:
            if frame[1] == call_id:
                self.waiting.remove(frame)
                self.conn.sendall(wire.encode(wire.END, call_id, b'{"canceled":true}'))
                return

    def run(self, _kind, call_id, header, body):
        output = self.output
        output.begin(call_id)
        rest = b''
        # Each call has its own context variables, as each task of an async function has.
        context = contextvars.copy_context()
        try:
            event = self.to_event(header)
            add_body(event, body)
            given = given_of(event, body)
            result = context.run(self.call, event)
            del event
            if hasattr(result, '__await__'):
                result = context.run(self.wait_for, result)
            head, data = to_reply(result, given)
            if head is None or len(data) > wire.MAX_REPLY_BODY_BYTES:
                frame = self.stream(call_id, head, data, context)
            elif len(data) < wire.LARGE_BYTES:
                frame = wire.encode(wire.REPLY, call_id, head, data)
            else:
                frame, rest = wire.encode_head(wire.REPLY, call_id, head, len(data)), data
        except ContractError as error:
            frame = contract_frame(call_id, error)
        except (HungUp, wire.ProtocolError):
            raise
        except BaseException as error:
            frame = self.link.failure_frame(call_id, error)
            # Its frames may hold all the memory there is.
            del error, context
        # Sent before the next call begins: what the gateway has not heard of must not have run (runtimes/python.6).
        if output.dirty:
            output.end()
        output.id = 0
        wire.send(self.conn, frame, rest)
        loaded = self.link.loaded_frame()
        if loaded is not None:
            self.conn.sendall(loaded)
        if self.link.ran_out:
            self.link.end_if_exhausted()

    def wait_for(self, awaitable):
        if self.loop is None:
            self.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self.loop)
        return self.loop.run_until_complete(_await(awaitable))

    def stream(self, call_id, head, data, context):
        """Sends a body in chunks; returns the frame that ends the call."""
        self.running, self.canceled, self.credit = call_id, False, wire.STREAM_WINDOW_BYTES
        try:
            if head is not None:
                self.conn.sendall(wire.encode(wire.REPLY, call_id, streaming(head, len(data))))
                self.send_piece(call_id, data)
                return wire.encode(wire.END, call_id)
            return self.stream_pieces(call_id, data, context)
        except Canceled:
            return wire.encode(wire.END, call_id, b'{"canceled":true}')
        finally:
            self.running = 0

    def stream_pieces(self, call_id, stream: Stream, context):
        pieces = stream.pieces
        step = self.stepper(stream)
        started = False
        try:
            if not stream.wants_first:
                self.conn.sendall(wire.encode(wire.REPLY, call_id, stream.head(None)))
                started = True
            while True:
                try:
                    piece = context.run(step)
                    if piece is _NOTHING:
                        break
                    data = to_piece(piece)
                except BaseException as error:
                    if not started:
                        raise
                    return wire.encode(wire.END, call_id, wire.to_header({'error': failure.to_message(error)}))
                if not started:
                    self.conn.sendall(wire.encode(wire.REPLY, call_id, stream.head(piece)))
                    started = True
                self.poll()
                self.send_piece(call_id, data)
            if not started:
                self.conn.sendall(wire.encode(wire.REPLY, call_id, stream.head(None)))
            return wire.encode(wire.END, call_id)
        finally:
            self.close(pieces, context)

    def stepper(self, stream):
        pieces = stream.pieces
        if not stream.is_async:
            return lambda: next(pieces, _NOTHING)

        async def following():
            try:
                return await pieces.__anext__()
            except StopAsyncIteration:
                return _NOTHING

        return lambda: self.wait_for(following())

    def close(self, pieces, context):
        """Ends a generator that was left early, so that its `finally` blocks run; what they raise concerns nobody."""
        close = getattr(pieces, 'close', None) or getattr(pieces, 'aclose', None)
        if close is None:
            return
        try:
            result = context.run(close)
            if hasattr(result, '__await__'):
                self.wait_for(result)
        except BaseException:
            pass

    def send_piece(self, call_id, data):
        view = memoryview(data)
        at = 0
        while at < len(view):
            while self.credit <= 0:
                self.read()
                if self.canceled:
                    raise Canceled
            piece = view[at : at + self.credit]
            wire.send(self.conn, wire.encode_head(wire.CHUNK, call_id, b'', len(piece)), piece)
            self.credit -= len(piece)
            at += len(piece)

    def poll(self):
        """Notices a cancel or a hang-up without waiting."""
        try:
            self.read(MSG_DONTWAIT)
        except BlockingIOError:
            pass
        if self.canceled:
            raise Canceled


async def _await(awaitable):
    return await awaitable
