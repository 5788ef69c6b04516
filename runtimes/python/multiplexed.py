"""Many calls at once on one event loop: `async def` functions, and functions that leave work running behind them."""

import asyncio
import contextvars
import inspect
import os
from collections import deque

from . import capture, failure, wire
from .envelope import ContractError, streaming, to_piece, to_reply
from .event import EventMaker, add_body, given_of
from .link import contract_frame

_output = contextvars.ContextVar('fngw_output', default=None)
_NOTHING = object()


class OpenCall:
    """A call that has not been answered to its end."""

    __slots__ = ('id', 'task', 'canceled', 'credit', 'granted')

    def __init__(self, call_id):
        self.id = call_id
        self.task = None
        self.canceled = False
        self.credit = wire.STREAM_WINDOW_BYTES
        self.granted = None


class Multiplexed:
    def __init__(self, link, target):
        self.link = link
        self.conn = link.conn
        self.call = target.call
        self.serial = not target.is_async
        self.to_event = EventMaker(link.start).to_event
        link.capture_for(_output.get)
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        link.background = self.run_in_background
        self.open = {}
        self.waiting = deque()
        self.background = set()
        self.unsent = []
        self.rest = b''
        self.flushing = False
        self.closed = False
        self.problem = None
        # From 3.12 on a task can begin at once, without a turn of the loop.
        self.task_options = {'eager_start': True} if hasattr(asyncio, 'eager_task_factory') else {}

    def serve(self):
        """Runs calls until the gateway hangs up and background work is done. Raises ProtocolError."""
        self.conn.setblocking(False)
        self.loop.add_reader(self.conn, self.read)
        self.loop.run_forever()
        if self.problem is not None:
            self.conn.setblocking(True)
            raise self.problem
        self.loop.run_until_complete(self.finish())

    async def finish(self):
        tasks = [call.task for call in self.open.values() if call.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self.background, return_exceptions=True)
        await self.loop.shutdown_asyncgens()

    # Frames in

    def read(self):
        try:
            frames = self.link.read()
            if frames is None:
                self.stop(None)
            else:
                self.take(frames)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.stop(None)
        except wire.ProtocolError as error:
            self.stop(error)

    def stop(self, problem):
        if self.closed:
            return
        self.closed = True
        self.problem = problem
        self.loop.remove_reader(self.conn)
        self.loop.stop()

    def take(self, frames):
        for kind, frame_id, header, body in frames:
            if kind == wire.CALL:
                if frame_id in self.open:
                    raise wire.ProtocolError('DUPLICATE_ID', 'call id %d is in use' % frame_id)
                event = self.to_event(header)
                if self.serial and (self.open or self.waiting):
                    self.waiting.append((frame_id, event, body))
                else:
                    self.begin(frame_id, event, body)
            elif kind == wire.MORE:
                call = self.open.get(frame_id)
                granted = wire.parse_header(header).get('bytes')
                if call is not None and isinstance(granted, int) and granted > 0:
                    call.credit = min(call.credit + granted, wire.STREAM_WINDOW_BYTES)
                    if call.granted is not None and not call.granted.done():
                        call.granted.set_result(None)
            elif kind == wire.CANCEL:
                self.cancel(frame_id)
            elif kind == wire.PING:
                self.send(wire.encode(wire.PONG, frame_id))
            elif kind != wire.PONG:
                raise wire.ProtocolError('UNEXPECTED_KIND', 'a worker does not take frames of kind %d' % kind)

    def cancel(self, call_id):
        call = self.open.get(call_id)
        if call is not None:
            call.canceled = True
            if call.task is not None:
                # A turn later: a task cancelled before its first step would never answer.
                self.loop.call_soon(call.task.cancel)
            return
        for waiting in self.waiting:
            if waiting[0] == call_id:
                self.waiting.remove(waiting)
                self.send(wire.encode(wire.END, call_id, b'{"canceled":true}'))
                return

    # Calls

    def begin(self, call_id, event, body):
        call = self.open[call_id] = OpenCall(call_id)
        task = asyncio.Task(self.run(call, event, body), loop=self.loop, **self.task_options)
        if call_id in self.open:
            call.task = task

    async def run(self, call, event, body):
        output = capture.Output(self.send)
        output.begin(call.id)
        _output.set(output)
        try:
            add_body(event, body)
            given = given_of(event, body)
            result = self.call(event)
            del event
            if inspect.isawaitable(result):
                result = await result
            head, data = to_reply(result, given)
            if head is None:
                frame = await self.stream_pieces(call, data)
            elif len(data) <= wire.MAX_REPLY_BODY_BYTES:
                frame = wire.encode(wire.REPLY, call.id, head, data)
            else:
                self.send(wire.encode(wire.REPLY, call.id, streaming(head, len(data))))
                await self.send_piece(call, data)
                frame = wire.encode(wire.END, call.id)
        except ContractError as error:
            frame = contract_frame(call.id, error)
        except BaseException as error:
            # Every exception ends here: SystemExit or KeyboardInterrupt of one call must not end the loop that runs the others.
            frame = self.link.failure_frame(call.id, error)
        if call.canceled:
            frame = wire.encode(wire.END, call.id, b'{"canceled":true}')
        if output.dirty:
            output.end()
        output.id = 0
        self.send(frame)
        loaded = self.link.loaded_frame()
        if loaded is not None:
            self.send(loaded)
        del self.open[call.id]
        if self.link.ran_out:
            # After the turn in which the answer is sent.
            self.loop.call_later(0.05, self.link.end_if_exhausted)
        if self.waiting:
            self.loop.call_soon(self.begin_next)

    def begin_next(self):
        if self.waiting and not self.open:
            self.begin(*self.waiting.popleft())

    async def stream_pieces(self, call, stream):
        pieces = stream.pieces
        started = False
        try:
            if not stream.wants_first:
                self.send(wire.encode(wire.REPLY, call.id, stream.head(None)))
                started = True
            while True:
                try:
                    if stream.is_async:
                        piece = await _following(pieces)
                    else:
                        # A plain generator holds the loop while it works; others get their turn between its pieces.
                        await asyncio.sleep(0)
                        piece = next(pieces, _NOTHING)
                    if piece is _NOTHING:
                        break
                    data = to_piece(piece)
                except BaseException as error:
                    if not started:
                        raise
                    return wire.encode(wire.END, call.id, wire.to_header({'error': failure.to_message(error)}))
                if not started:
                    self.send(wire.encode(wire.REPLY, call.id, stream.head(piece)))
                    started = True
                await self.send_piece(call, data)
            if not started:
                self.send(wire.encode(wire.REPLY, call.id, stream.head(None)))
            return wire.encode(wire.END, call.id)
        finally:
            await _close(pieces)

    async def send_piece(self, call, data):
        view = memoryview(data)
        at = 0
        while at < len(view):
            while call.credit <= 0:
                call.granted = self.loop.create_future()
                await call.granted
            piece = view[at : at + call.credit]
            self.send(wire.encode(wire.CHUNK, call.id, b'', piece))
            call.credit -= len(piece)
            at += len(piece)

    def run_in_background(self, awaitable):
        """`waitUntil`: best effort; a failure is one line of the function's stderr."""
        try:
            task = asyncio.ensure_future(awaitable, loop=self.loop)
        except TypeError as error:
            log_rejection(error)
            return
        self.background.add(task)
        task.add_done_callback(self.background_ended)

    def background_ended(self, task):
        self.background.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log_rejection(task.exception())

    # Frames out: those of one turn of the loop leave in one write.

    def send(self, frame):
        if self.closed:
            return
        self.unsent.append(frame)
        if not self.flushing:
            self.flushing = True
            self.loop.call_soon(self.flush)

    def flush(self):
        self.flushing = False
        if self.rest or self.closed:
            return
        unsent = self.unsent
        data = unsent[0] if len(unsent) == 1 else b''.join(unsent)
        unsent.clear()
        try:
            sent = self.conn.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self.stop(None)
            return
        if sent < len(data):
            self.rest = memoryview(data)[sent:]
            self.loop.add_writer(self.conn, self.flush_rest)

    def flush_rest(self):
        try:
            self.rest = self.rest[self.conn.send(self.rest) :]
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.rest = b''
            self.loop.remove_writer(self.conn)
            self.stop(None)
            return
        if not self.rest:
            self.loop.remove_writer(self.conn)
            if self.unsent:
                self.flush()


async def _following(pieces):
    try:
        return await pieces.__anext__()
    except StopAsyncIteration:
        return _NOTHING


async def _close(pieces):
    """Ends a generator that was left early, so that its `finally` blocks run; what they raise concerns nobody."""
    close = getattr(pieces, 'aclose', None) or getattr(pieces, 'close', None)
    if close is None:
        return
    try:
        result = close()
        if inspect.isawaitable(result):
            await result
    except BaseException:
        pass


def log_rejection(error):
    line = 'wait_until_rejection: %s\n' % failure.to_message(error).replace('\n', ' ')
    os.write(2, line.encode('utf-8', 'replace'))
