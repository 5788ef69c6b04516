"""`cloud-lambda`: handler(event, context) with the gateway-v2 event. Page: spec/invocation/adapters.md."""

import asyncio
import inspect
import os
import time
from urllib.parse import quote, urlencode

from . import envelope

#: Used when the event's context has no `timeout_ms`.
DEFAULT_TIMEOUT_MS = 2500


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


def make_call(fn, start):
    """Returns `call(event)` for a handler that takes `(event, context)`."""

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
