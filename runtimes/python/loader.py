"""From a handler file to a module, and from a module to the callable in it.
Source: Entry file resolution, Callable selection; page spec/runtimes/python.md."""

import difflib
import importlib.util
import os
import re
import sys
import time

from .failure import LoadError, describe, shorten_path

#: Parts of the standard library that may lie elsewhere than the rest of it.
_STANDARD_ENDS = re.compile(r'[/\\](lib-dynload|python\d+\.zip)$')

#: The only variables of the host a function sees beside its own.
BASE_ENV = (
    'PATH', 'HOME', 'USER', 'LOGNAME', 'LANG', 'LANGUAGE', 'TZ', 'TMPDIR', 'TMP', 'TEMP', 'SSL_CERT_FILE', 'SSL_CERT_DIR',
)  # fmt: skip



def prepare_process(start):
    """Environment, working folder, import path and arguments, as the function's `start` says. Raises LoadError."""
    env = {key: value for key, value in os.environ.items() if key in BASE_ENV or key.startswith('LC_')}
    env.update(start.get('env') or {})
    os.environ.clear()
    for key, value in env.items():
        try:
            os.environ[key] = value if isinstance(value, str) else str(value)
        except ValueError as error:
            raise LoadError('environment variable %r cannot be set: %s' % (key, error)) from None
    if 'TZ' in env and hasattr(time, 'tzset'):
        time.tzset()
    entry = entry_path(start)
    fn_dir = function_dir(start)
    try:
        os.chdir(fn_dir)
    except OSError as error:
        raise LoadError('cannot enter the function folder %s: %s' % (fn_dir, error.strerror)) from None
    sys.argv = [entry]
    sys.path[:] = import_path(entry, fn_dir, start.get('packs') or (), sys.path)


def entry_path(start):
    return os.path.normpath(os.path.join(start.get('dir') or '.', start.get('entry') or 'handler.py'))


def function_dir(start):
    return os.path.normpath(start.get('dir') or os.path.dirname(entry_path(start)))


def import_path(entry, fn_dir, packs, given):
    """Search order: standard library, folder of the handler, function folder, its `.deps`, packs, installed packages.

    The standard library comes first: file routes are called `email.py` or `queue.py`, and a library that imports the
    standard module of that name must not get a route."""
    standard = os.path.dirname(os.__file__)
    own, installed = [], []
    for path in given:
        is_own = path in (standard, os.path.join(standard, 'lib-dynload')) or _STANDARD_ENDS.search(path) is not None
        (own if is_own else installed).append(path)
    added = [os.path.dirname(entry)]
    for folder in (fn_dir, os.path.join(fn_dir, '.deps')):
        if folder not in added and os.path.isdir(folder):
            added.append(folder)
    for pack in packs:
        deps = os.path.join(pack, '.deps')
        folder = deps if os.path.isdir(deps) else pack
        if os.path.isdir(folder):
            added.append(folder)
    return own + added + [path for path in installed if path]


def optional_params(start):
    """Route parameters that a request may lack: those of `[[...name]]` in the path of the handler file."""
    path = entry_path(start)
    return frozenset(re.findall(r'\[\[\.\.\.([^\[\]]+)\]\]', shorten_path(path, start.get('root') or '')))


def load_module(start):
    """Runs the handler file as a module of its own. Raises LoadError with file, line, cause and what to do."""
    path = entry_path(start)
    root = start.get('root') or ''
    shown = shorten_path(path, root)
    if not os.path.isfile(path):
        raise LoadError('handler file %s does not exist' % shown, file=shown)
    # Routes are called `[id].py` or `post.users.[id].py`: no import statement could name them, and none has to.
    name = 'fn_' + re.sub(r'\W', '_', os.path.splitext(os.path.basename(path))[0])
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        fields = describe('load', error, root, function_dir(start))
        place = '%s:%s' % (fields.get('file', shown), fields['line']) if 'line' in fields else fields.get('file', shown)
        what = 'syntax error in' if isinstance(error, SyntaxError) else 'cannot load'
        message = '%s %s: %s' % (what, place, fields.pop('message'))
        hint = _hint(error, start)
        if hint is not None:
            fields['hint'] = hint
        fields.pop('code')
        raise LoadError(message, **fields) from None
    return module


def _hint(error, start):
    folder = shorten_path(os.path.dirname(entry_path(start)), start.get('root') or '')
    if isinstance(error, ModuleNotFoundError) and error.name:
        top = error.name.split('.')[0]
        return 'add %s to requirements.txt beside the handler, or put %s.py into %s' % (top, top, folder)
    if isinstance(error, ImportError) and 'relative import' in str(error):
        return 'a handler file is no package: write `from _shared import x` for a file beside it'
    if isinstance(error, ImportError) and error.name:
        if os.path.isfile(os.path.join(os.path.dirname(entry_path(start)), error.name + '.py')):
            return '%s is a module of the standard library and hides %s.py of this folder: rename that file' % (
                error.name,
                error.name,
            )
    return None


def pick(module, start):
    """The function to call: the first there is of the names that the gateway gives. Raises LoadError."""
    names = start['callable']['names']
    for name in names:
        fn = getattr(module, name, None)
        if fn is None:
            continue
        if callable(fn):
            return fn
        shown = shorten_path(entry_path(start), start.get('root') or '')
        raise LoadError('%s has "%s", but it is a value of type %s, not a function' % (shown, name, type(fn).__name__), file=shown)
    shown = shorten_path(entry_path(start), start.get('root') or '')
    known = sorted(
        name
        for name, value in vars(module).items()
        if callable(value) and not name.startswith('_') and getattr(value, '__module__', None) == module.__name__
    )
    listed = ', '.join(known[:20]) or 'none'
    near = difflib.get_close_matches(names[0], known, 1)
    hint = 'add: def %s(event): ...' % names[0]
    if known:
        hint = 'rename "%s" to "%s"' % (near[0] if near else known[0], names[0])
    if names[0] != 'fetch':
        hint += ', or %s invoke.handler in fn.config.json' % ('change' if len(names) == 1 else 'name the function in')
    raise LoadError(
        '%s has no function %s (it defines %s)' % (shown, ' or '.join('"%s"' % n for n in names), listed),
        file=shown,
        hint=hint,
    )
