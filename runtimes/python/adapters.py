"""Invocation adapters: other calling conventions over the same event and envelope.
Source: Invocation adapters; page spec/invocation/adapters.md."""

from . import edge_adapter, injection, lambda_adapter, loader

#: What `start` may say; other spellings are the gateway's to translate.
ADAPTERS = ('native', 'cloud-lambda', 'edge-worker')


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
    adapter = start.get('adapter') or 'native'
    if adapter not in ADAPTERS:
        return Target(_refuse(adapter), False, False)
    fn = loader.pick(loader.load_module(start), start)
    if adapter == 'native':
        call = injection.bind(fn, loader.optional_params(start))
    elif adapter == 'cloud-lambda':
        call = lambda_adapter.make_call(injection.bind_positional(fn), start)
    else:
        has_upstream = (start.get('context') or {}).get('edge') is True
        call = edge_adapter.make_call(injection.bind_positional(fn), background, has_upstream)
    is_async = injection.is_async(fn)
    return Target(call, is_async, is_async or adapter == 'edge-worker')


def _refuse(given):
    def call(_event):
        raise UnsupportedAdapter(given)

    return call
