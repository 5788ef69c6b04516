"""From a `call` frame to the event a handler gets. Source: Handler event; page spec/invocation/event.md.

Of a request that came twice in a row the event is kept, and each further one gets a copy (runtimes/python.32)."""

import codecs
import re

from . import wire
from .base64_text import to_base64

#: What no two calls share stands first in the headers that the gateway writes, and this behind it.
_SHARED = b',"method":'
#: Texts without escapes only, which stand for themselves.
_OWN_FIELDS = re.compile(rb'\{"id":"([\w.-]+)","ts":([1-9][0-9]{0,14}),"trace":"([0-9a-f-]+)"')
#: A longer header is read each time: what is kept stays in memory until another request comes twice.
MAX_KEPT_BYTES = 4096
#: What is no text shows it here already, as a rule; the error of a failed look holds a copy of all that was looked at.
LOOK_BYTES = 1024


class EventMaker:
    """Makes the events of one function: each is fresh, so that a handler that changes its event changes nothing of the next call."""

    __slots__ = ('_version', '_env', '_context', '_rest', '_kept')

    def __init__(self, start):
        """`start` is the header of the worker's `start` frame: its `env` and `context` go into every event."""
        self._version = start.get('version') or 'default'
        self._env = _Template(start.get('env') or {})
        self._context = _Template(start.get('context') or {})
        #: Of the last header, what stands behind its own fields; None when that is not to be kept.
        self._rest = None
        #: Templates of event and context for a header with this rest; None until it came twice.
        self._kept = None

    def to_event(self, header):
        """The event of a call, without its body. Raises ProtocolError."""
        shared_at = header.find(_SHARED)
        rest = header[shared_at:]
        if rest != self._rest:
            event = self._read(header)
            self._rest = rest if 0 < shared_at and len(rest) <= MAX_KEPT_BYTES else None
            self._kept = None
            return event
        own = _OWN_FIELDS.fullmatch(header, 0, shared_at)
        if own is None:
            return self._read(header)
        request_id, ts, trace = own.groups()
        request_id, ts, trace = request_id.decode('ascii'), int(ts), trace.decode('ascii')
        if self._kept is not None:
            return self._copy_kept(request_id, ts, trace)
        event = self._read(header)
        # A rest that says one of these fields again has the last word, and is read each time.
        if event['id'] == request_id and event['ts'] == ts and event['context']['trace'] == trace:
            self._kept = _Template({**event, 'path_params': None, 'env': None, 'context': None}), _Template(event['context'])
        return event

    def _read(self, header):
        fields = wire.parse_header(header)
        get = fields.get
        request_id = get('id')
        params = get('params') or {}
        context = self._context.make()
        context['request_id'] = request_id
        context['user'] = get('user')
        context['trigger'] = get('trigger')
        context['trace'] = get('trace')
        context['trace_state'] = get('trace_state')
        return {
            'id': request_id,
            'ts': get('ts'),
            'method': get('method'),
            'path': get('path'),
            'raw_path': get('raw_path'),
            'params': params,
            'path_params': params,
            'query': get('query') or {},
            'headers': get('headers') or {},
            'body': None,
            'is_base64': False,
            'body_base64': None,
            'client': get('client'),
            'session': get('session'),
            'version': self._version,
            'env': self._env.make(),
            'context': context,
        }

    def _copy_kept(self, request_id, ts, trace):
        kept_event, kept_context = self._kept
        event = kept_event.make()
        event['id'] = request_id
        event['ts'] = ts
        event['path_params'] = event['params']
        event['env'] = self._env.make()
        event['context'] = context = kept_context.make()
        context['request_id'] = request_id
        context['trace'] = trace
        return event


def add_body(event, body):
    """Gives an event the body of its call: text, or base64 text of what is no text."""
    if body:
        try:
            if len(body) > LOOK_BYTES:
                # A character may be cut in two.
                codecs.utf_8_decode(body[:LOOK_BYTES], 'strict', False)
            event['body'] = str(body, 'utf-8')
        except UnicodeDecodeError:
            event['body_base64'] = to_base64(body)
            event['is_base64'] = True


def given_of(event, body):
    """(base64 text, bytes) of a body that is no text, else None: what the handler gives back need not be decoded again."""
    return (event['body_base64'], body) if event['is_base64'] else None


class _Template:
    """An object of which each call gets a copy of its own."""

    __slots__ = ('_fields', '_flat', '_deep')

    def __init__(self, fields):
        self._fields = _copy(fields)
        nested = [(key, value) for key, value in self._fields.items() if type(value) in (dict, list)]
        #: Those that one call copies whole.
        self._flat = [(key, value) for key, value in nested if _is_flat(value)]
        self._deep = [(key, value) for key, value in nested if not _is_flat(value)]

    def make(self):
        made = self._fields.copy()
        for key, value in self._flat:
            made[key] = value.copy()
        for key, value in self._deep:
            made[key] = _copy(value)
        return made


def _is_flat(value):
    items = value.values() if type(value) is dict else value
    return not any(type(item) in (dict, list) for item in items)


def _copy(value):
    if type(value) is dict:
        return {key: _copy(item) for key, item in value.items()}
    if type(value) is list:
        return [_copy(item) for item in value]
    return value
