"""Invocation adapters: other calling conventions over the same event and envelope.
Source: Invocation adapters; page spec/invocation/adapters.md."""

import base64
import inspect
import json
import os
import sys
import time
from urllib.parse import quote, urlencode

from . import envelope, injection, loader
from .failure import to_message

ALIASES = {
    '': 'native', 'native': 'native', 'none': 'native', 'default': 'native',
    'cloud-lambda': 'cloud-lambda', 'lambda': 'cloud-lambda', 'apigw-v2': 'cloud-lambda',
    'api-gateway-v2': 'cloud-lambda', 'aws-lambda': 'cloud-lambda',
    'edge-worker': 'edge-worker', 'worker': 'edge-worker', 'workers': 'edge-worker',
    'cloudflare-worker': 'edge-worker', 'cloudflare-workers': 'edge-worker',
}  # fmt: skip
#: Used when the event's context has no `timeout_ms`.
DEFAULT_TIMEOUT_MS = 2500


class UnsupportedAdapter(Exception):
    """`invoke.adapter` names an adapter that does not exist; every call of the function fails with this."""


class Target:
    """What a worker calls. `call(event)` returns a value or an awaitable; `is_async` workers run many calls at once;
    `needs_loop` asks for an event loop that runs on between calls."""

    __slots__ = ('call', 'is_async', 'needs_loop')

    def __init__(self, call, is_async, needs_loop):
        self.call = call
        self.is_async = is_async
        self.needs_loop = needs_loop


def make_target(start, background):
    """Loads the function of a `start` header. `background(awaitable)` runs what `waitUntil` is given.
    Raises failure.LoadError."""
    given = start.get('adapter') or 'native'
    adapter = ALIASES.get(given)
    if adapter is None:
        return Target(_refuse(given), False, False)
    module = loader.load_module(start)
    if adapter == 'native':
        fn = loader.pick(module, start)
        call = injection.bind(fn)
    elif adapter == 'cloud-lambda':
        fn = loader.pick(module, start)
        call = _lambda_call(injection.bind_positional(fn), start)
    else:
        fn = loader.pick(module, start, first=('fetch',))
        has_upstream = (start.get('context') or {}).get('edge') is True
        call = _fetch_call(injection.bind_positional(fn), background, has_upstream)
    is_async = injection.is_async(fn)
    return Target(call, is_async, is_async or adapter == 'edge-worker')


def _refuse(given):
    def call(_event):
        raise UnsupportedAdapter(given)

    return call


# cloud-lambda


class LambdaContext:
    """Second argument of a `cloud-lambda` handler."""

    def __init__(self, event, start):
        context = event['context']
        self._deadline = time.monotonic() + (context.get('timeout_ms') or DEFAULT_TIMEOUT_MS) / 1000
        self.outcome = None
        self.on_outcome = None
        name = start.get('name') or ''
        self.aws_request_id = self.awsRequestId = event['id']
        self.function_name = self.functionName = name
        self.function_version = self.functionVersion = start.get('version') or '$LATEST'
        self.invoked_function_arn = self.invokedFunctionArn = 'arn:aws:lambda:local:000000000000:function:' + name
        self.memory_limit_in_mb = self.memoryLimitInMB = str(start.get('memory_mb') or 512)
        self.log_group_name = self.logGroupName = '/fngw/' + name
        self.log_stream_name = self.logStreamName = str(os.getpid())
        self.identity = None
        self.client_context = self.clientContext = None
        self.callbackWaitsForEmptyEventLoop = False

    def get_remaining_time_in_millis(self):
        return max(0, int((self._deadline - time.monotonic()) * 1000))

    getRemainingTimeInMillis = get_remaining_time_in_millis

    def succeed(self, result=None):
        self._complete((None, result))

    def fail(self, error=None):
        self._complete((error if error is not None else 'context.fail was called', None))

    def done(self, error=None, result=None):
        self._complete((error, result))

    def _complete(self, outcome):
        # The first completion counts, as with a promise.
        if self.outcome is None:
            self.outcome = outcome
            if self.on_outcome is not None:
                self.on_outcome()


class HandlerFailed(Exception):
    """`context.fail(text)`."""


def _lambda_call(fn, start):
    def call(event):
        context = LambdaContext(event, start)
        try:
            result = fn(to_lambda_event(event), context)
        except BaseException:
            if context.outcome is None:
                raise
            return _outcome(context)
        if inspect.isawaitable(result):
            return _first(result, context)
        return _outcome(context) if context.outcome is not None else lambda_answer(result)

    return call


async def _first(awaitable, context):
    """The result of the handler, or what `done`, `fail` or `succeed` says before it ends."""
    import asyncio

    task = asyncio.ensure_future(awaitable)
    if context.outcome is None:
        told = asyncio.get_running_loop().create_future()
        context.on_outcome = lambda: told.done() or told.set_result(None)
        try:
            await asyncio.wait((task, told), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
    if context.outcome is not None:
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return _outcome(context)
    return lambda_answer(task.result())


def _outcome(context):
    error, result = context.outcome
    if error is None:
        return lambda_answer(result)
    raise error if isinstance(error, BaseException) else HandlerFailed(str(error))


def lambda_answer(result):
    """A gateway-v2 answer: `cookies` become `Set-Cookie` headers."""
    if isinstance(result, dict) and isinstance(result.get('cookies'), (list, tuple)) and envelope.is_envelope(result):
        headers = dict(result.get('headers') or {})
        cookies = list(result['cookies'])
        for name in [name for name in headers if isinstance(name, str) and name.lower() == 'set-cookie']:
            before = headers.pop(name)
            cookies = (list(before) if isinstance(before, (list, tuple)) else [before]) + cookies
        if cookies:
            headers['set-cookie'] = cookies
        result = {**result, 'headers': headers}
    return result


def to_lambda_event(event):
    """The gateway-v2 event (payload version 2.0) of a call. Keys without a value are absent, as on the original."""
    headers = dict(event['headers'])
    raw_path, _, raw_query = (event['raw_path'] or event['path'] or '/').partition('?')
    client = event['client'] or {}
    host = (headers.get('host') or 'localhost').split(':')[0]
    route_key = '%s %s' % (event['method'], raw_path)
    seconds, millis = divmod(int(event['ts'] or time.time() * 1000), 1000)
    if not raw_query and event['query']:
        raw_query = urlencode(event['query'], doseq=True, quote_via=quote)
    result = {
        'version': '2.0',
        'routeKey': route_key,
        'rawPath': raw_path,
        'rawQueryString': raw_query,
        'headers': headers,
        'requestContext': {
            'accountId': '000000000000',
            'apiId': 'local',
            'domainName': host,
            'domainPrefix': 'local',
            'http': {
                'method': event['method'],
                'path': raw_path,
                'protocol': 'HTTP/1.1',
                'sourceIp': client.get('ip') or '',
                'userAgent': client.get('ua') or '',
            },
            'requestId': event['id'],
            'routeKey': route_key,
            'stage': '$default',
            'time': time.strftime('%d/%b/%Y:%H:%M:%S +0000', time.gmtime(seconds)),
            'timeEpoch': seconds * 1000 + millis,
        },
        'isBase64Encoded': event['is_base64'],
    }
    cookie = headers.get('cookie')
    if cookie:
        result['cookies'] = [part.strip() for part in cookie.split(';') if part.strip()]
    if event['query']:
        result['queryStringParameters'] = {
            name: ','.join(value) if isinstance(value, list) else value for name, value in event['query'].items()
        }
    if event['params']:
        result['pathParameters'] = dict(event['params'])
    body = event['body_base64'] if event['is_base64'] else event['body']
    if body is not None:
        result['body'] = body
    return result


# edge-worker


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
        """When the handler fails from now on, the request goes to the function's upstream; without `edge` there is none."""
        self.passes_through = True

    passThroughOnException = pass_through_on_exception


def _fetch_call(fn, background, has_upstream):
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
