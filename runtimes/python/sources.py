"""Which files are the user's own: not Python's library, not installed packages, not this runtime. A package that is
linked or installed as editable has its files elsewhere, and those count as the user's."""

import functools
import os
import sys
import sysconfig

#: Folders whose content was installed, wherever they lie.
_INSTALLED = frozenset(('site-packages', 'dist-packages', '.deps', '.svc'))
_MARK = '_fngw.loaded_before'


def _library_folders():
    paths = sysconfig.get_paths()
    # Python's own modules are resolved like any other: the interpreter may be behind a link.
    own = {os.path.realpath(paths[name]) for name in ('stdlib', 'platstdlib')}
    return (os.path.dirname(os.path.realpath(__file__)) + os.sep, *(path + os.sep for path in sorted(own)))


_LIBRARY = _library_folders()


@functools.lru_cache(maxsize=4096)
def users_path(path):
    """The real path of a file of the user's, None for any other file and for `<frozen importlib>` and its like."""
    if not path or path[0] == '<':
        return None
    real = os.path.realpath(path)
    if real.startswith(_LIBRARY) or not _INSTALLED.isdisjoint(real.split(os.sep)):
        return None
    return real


def mark_loaded_modules():
    """Everything loaded so far belongs to the daemon. Called before the first fork."""
    sys.modules[_MARK] = sys


class LoadedFiles:
    """Source files of the user's that this process has loaded."""

    def __init__(self):
        self._told = set()
        self._seen = 0

    def take_new(self):
        """Full real paths that were not given before, in order."""
        # Counted before: a thread may import meanwhile.
        self._seen = len(sys.modules)
        try:
            names = list(_newer_modules())
        except RuntimeError:
            # A thread imports right now: the next look finds it.
            self._seen = -1
            return []
        files = set()
        for name in names:
            path = getattr(sys.modules.get(name), '__file__', None)
            if isinstance(path, str) and path.endswith('.py'):
                files.add(users_path(path))
        files -= self._told
        files.discard(None)
        self._told |= files
        return sorted(files)

    def has_grown(self):
        """True when a module was loaded since the last look: costs nothing, so that every call can ask."""
        return len(sys.modules) != self._seen


def _newer_modules():
    """Newest first, up to what the daemon had loaded: looking at all of that would copy its memory pages."""
    for name in reversed(sys.modules):
        if name == _MARK:
            return
        yield name
