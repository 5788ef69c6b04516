"""From a `call` frame to the event a handler gets. Source: Handler event; page spec/invocation/event.md."""

from .base64_text import to_base64


def make_event_factory(start):
    """Returns `make(fields, body) -> event` for one function.

    `start` is the header of the worker's `start` frame: its `env` and `context` go into every event, copied each time,
    so that a handler that changes its event changes nothing of the next call."""
    env = start.get('env') or {}
    static = start.get('context') or {}
    nested = tuple(key for key, value in static.items() if isinstance(value, (dict, list)))
    version = start.get('version') or 'default'

    def make(fields, body):
        get = fields.get
        request_id = get('id')
        params = get('params') or {}
        text = binary = None
        if body:
            try:
                text = str(body, 'utf-8')
            except UnicodeDecodeError:
                binary = to_base64(body)
        context = {
            **static,
            'request_id': request_id,
            'user': get('user'),
            'trigger': get('trigger'),
            'trace': get('trace'),
            'trace_state': get('trace_state'),
        }
        for key in nested:
            context[key] = _copy(static[key])
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
            'body': text,
            'is_base64': binary is not None,
            'body_base64': binary,
            'client': get('client'),
            'session': get('session'),
            'version': version,
            'env': dict(env),
            'context': context,
        }

    return make


def given_of(event, body):
    """(base64 text, bytes) of a body that is no text, else None: what the handler gives back need not be decoded again."""
    return (event['body_base64'], body) if event['is_base64'] else None


def _copy(value):
    if type(value) is dict:
        return {key: _copy(item) for key, item in value.items()}
    if type(value) is list:
        return [_copy(item) for item in value]
    return value
