"""Lets a debugger into this worker, in development. Page: spec/runtime/debuggers.md."""

import os
import sys

from .failure import LoadError

#: The modules that Python starts with have no files, and debugpy would warn of that in the function's log.
_QUIET = 'PYDEVD_DISABLE_FILE_VALIDATION'


def open_debugger(path):
    """Listens with debugpy and returns the port. `path`: folder that has debugpy where the function does not bring its own, None
    for none. Raises LoadError."""
    os.environ[_QUIET] = '1'
    if path is not None:
        sys.path.append(path)
    try:
        import debugpy

        # Processes that a handler starts are its own.
        debugpy.configure(subProcess=False)
        return debugpy.listen(('127.0.0.1', 0))[1]
    except ImportError as error:
        raise LoadError('cannot debug: %s' % error, hint='python3 -m pip install debugpy') from None
    except (OSError, RuntimeError) as error:
        raise LoadError('cannot debug: debugpy does not listen: %s' % error) from None
    finally:
        if path is not None:
            sys.path.remove(path)
        os.environ.pop(_QUIET, None)
