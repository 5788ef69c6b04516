"""`edge-worker`: fetch(request, env, ctx). Page: spec/invocation/adapters.md."""

import base64
import inspect
import json
import sys

from .failure import to_message


class Headers(dict):
    """Lower-case names; looking up works in any case."""

    def __getitem__(self, name):
        return dict.__getitem__(self, name.lower())

    def __contains__(self, name):
        return isinstance(name, str) and dict.__contains__(self, name.lower())

    def get(self, name, default=None):
        return dict.get(self, name.lower(), default)

    has = __contains__


class Env(dict):
    """The function environment: `env['KEY']` and `env.KEY`."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError('the function environment has no "%s"' % name) from None


class EdgeRequest:
    """First argument of `fetch`."""

    def __init__(self, event):
        self.method = event['method']
        self.headers = Headers((name.lower(), value) for name, value in event['headers'].items())
        scheme = 'https' if self.headers.get('x-forwarded-proto') == 'https' else 'http'
        target = event['raw_path'] or event['path'] or '/'
        self.url = '%s://%s%s' % (scheme, self.headers.get('host') or 'localhost', target)
        self.params = event['params']
        self._event = event

    @property
    def body(self):
        """The body as bytes."""
        event = self._event
        if event['is_base64']:
            return base64.b64decode(event['body_base64'])
        return (event['body'] or '').encode('utf-8')

    async def text(self):
        return self.body.decode('utf-8', 'replace')

    async def json(self):
        return json.loads(self.body)

    async def bytes(self):
        return self.body

    array_buffer = arrayBuffer = bytes


class EdgeContext:
    """Third argument of `fetch`."""

    def __init__(self, event, background):
        self.request_id = self.requestId = event['id']
        self.params = event['params']
        self.passes_through = False
        self._background = background

    def wait_until(self, awaitable):
        """Runs an awaitable beside and after the answer; its failure is logged, nothing else."""
        self._background(awaitable)

    waitUntil = wait_until

    def pass_through_on_exception(self):
        """When the handler fails from now on, the request goes to the upstream of `edge`, if the function has one."""
        self.passes_through = True

    passThroughOnException = pass_through_on_exception


def make_call(fn, background, has_upstream):
    """Returns `call(event)` for a function that takes `(request, env, ctx)`."""

    async def finish(awaitable, event, ctx):
        try:
            return await awaitable
        except Exception as error:
            return pass_on(error, event, ctx)

    def pass_on(error, event, ctx):
        if not (ctx.passes_through and has_upstream):
            raise error
        print('passed through on exception: %s' % to_message(error), file=sys.stderr)
        proxy = {key: event[key] for key in ('method', 'headers', 'body', 'is_base64', 'body_base64')}
        return {'proxy': {'path': event['raw_path'], **proxy}}

    def call(event):
        ctx = EdgeContext(event, background)
        try:
            result = fn(EdgeRequest(event), Env(event['env']), ctx)
        except Exception as error:
            return pass_on(error, event, ctx)
        return finish(result, event, ctx) if inspect.isawaitable(result) else result

    return call
