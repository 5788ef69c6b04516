"""How a handler is called: which route parameters its signature takes. Decided once, when the function is loaded.
Source: Callable selection."""

import functools
import inspect


#: The argument that gets all route parameters, where the route has none of that name.
ALL_PARAMS = 'params'


class MissingParameter(TypeError):
    """The handler asks for an argument that the route does not have."""


def bind(fn, optional=()):
    """Returns `call(event)`.

    The first positional parameter is the event; every further one, and every keyword-only one, is the route parameter
    of its name, and `params` the dict of them all; `**kwargs` takes all route parameters that are left, `*args` the event alone. A keyword-only parameter
    `event` is the event. Without parameters the handler is called without arguments. A parameter of the names in `optional`
    is None where the route has none."""
    accepts = _signature(fn, follow=False)
    if accepts is None:
        return fn
    wants = _signature(fn, follow=True) or accepts
    outer = accepts.parameters.values()
    takes_any_name = any(p.kind is p.VAR_KEYWORD for p in outer)
    # A decorator made with functools.wraps shows the inner signature; what it really passes on is in the outer one.
    names = wants if takes_any_name else accepts
    return _make_call(fn, names.parameters.values(), optional)


def bind_positional(fn):
    """Returns `call(*arguments)` that passes as many of the arguments as the function takes, by position."""
    signature = _signature(fn, follow=False)
    if signature is None:
        return fn
    parameters = signature.parameters.values()
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return fn
    most = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
    return lambda *arguments: fn(*arguments[:most])


def is_async(fn):
    """True for `async def` with or without `yield`, also behind functools.partial or as `__call__` of an object."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    if not (inspect.isfunction(fn) or inspect.ismethod(fn)) and not inspect.isclass(fn):
        fn = getattr(fn, '__call__', fn)
    return inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn)


def _signature(fn, follow):
    try:
        return inspect.signature(fn, follow_wrapped=follow)
    except (TypeError, ValueError):
        return None


def _make_call(fn, parameters, optional):
    event_slot = None
    takes_any_count = False
    positional, named = [], []
    takes_rest = False
    for p in parameters:
        default = None if p.default is p.empty and p.name in optional else p.default
        if p.kind is p.VAR_POSITIONAL:
            takes_any_count = True
        elif p.kind is p.VAR_KEYWORD:
            takes_rest = True
        elif p.kind is p.KEYWORD_ONLY:
            named.append((p.name, default))
        elif event_slot is None:
            event_slot = p.name
        elif p.kind is p.POSITIONAL_ONLY:
            positional.append((p.name, default))
        else:
            named.append((p.name, default))
    has_event = event_slot is not None or takes_any_count
    if not positional and not named and not takes_rest:
        return fn if has_event else lambda event: fn()
    reserved = {event_slot, *(name for name, _ in positional)}

    def call(event):
        params = event['params']
        arguments = [event] if has_event else []
        for name, default in positional:
            arguments.append(_value(fn, params, name, default))
        keywords = {name: value for name, value in params.items() if name not in reserved} if takes_rest else {}
        for name, default in named:
            if name == 'event' and not has_event:
                keywords[name] = event
            elif name in params:
                keywords[name] = params[name]
            elif name == ALL_PARAMS:
                keywords[name] = params
            elif default is inspect.Parameter.empty or default is None:
                keywords[name] = _value(fn, params, name, default)
        if takes_rest and not has_event:
            keywords['event'] = event
        return fn(*arguments, **keywords)

    return call


def _value(fn, params, name, default):
    if name in params:
        return params[name]
    if name == ALL_PARAMS:
        return params
    if default is not inspect.Parameter.empty:
        return default
    known = ', '.join(params) or 'none'
    raise MissingParameter(
        '%s() takes an argument "%s", but the route has no parameter of that name (it has: %s)'
        % (getattr(fn, '__name__', 'handler'), name, known)
    )
