"""An exception as the fields of an `error` frame: message, file, line, stack, hint."""

import os
import traceback

from .sources import users_path

MAX_MESSAGE_CHARS = 4096
#: Largest stack, bytes.
MAX_STACK_BYTES = 8 * 1024
#: Frames shown of a long stack, fewer when their text is too large: the outermost and innermost ones carry the news.
MAX_STACK_FRAMES = (40, 20, 8, 2)


class LoadError(Exception):
    """The function cannot be loaded; `fields` go into the `error` frame."""

    def __init__(self, message, **fields):
        super().__init__(message)
        self.fields = {'code': 'load', 'message': cut_message(message), **fields}


def to_message(error):
    """The text of an exception, with its class where the text alone says too little: `KeyError: 'id'`, `SystemExit: 1`.
    Never raises, whatever `__str__` does."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:
        text = ''
    if not text:
        message = name
    elif isinstance(error, Exception) and not isinstance(error, KeyError):
        message = text
    else:
        message = '%s: %s' % (name, text)
    return cut_message(message)


def cut_message(message):
    return message if len(message) <= MAX_MESSAGE_CHARS else message[: MAX_MESSAGE_CHARS - 3] + '...'


def out_of_memory(limit_mb):
    """The words of every runtime for it."""
    return 'out of memory' + (': limit %d MB, FN_WORKER_MEMORY_MB' % limit_mb if limit_mb else '')


def shorten_path(path, root):
    """A path below the functions root without the root, any other path as it is."""
    return path[len(root) + 1 :] if root and path.startswith(root + os.sep) else path


def describe(code, error, root, fn_dir):
    """Fields of an `error` frame for an exception of user code."""
    frames = _users_frames(error)
    fields = {'code': code, 'message': to_message(error)}
    if isinstance(error, SyntaxError) and error.filename:
        place = (error.filename, error.lineno)
        fields['message'] = error.msg
    else:
        place = _place(frames, fn_dir, root)
    if place is not None:
        fields['file'] = shorten_path(place[0], root)
        if place[1] is not None:
            fields['line'] = place[1]
    fields['stack'] = _stack(error, frames)
    return fields


def _users_frames(error):
    """Frames of the user's own files, outermost first; those of Python, packages and this runtime say nothing to them."""
    return [frame for frame in traceback.extract_tb(error.__traceback__) if users_path(frame.filename) is not None]


def _place(frames, fn_dir, root):
    """(file, line) of the innermost frame in the function's folder, else below the root, else of any."""
    best, best_rank = None, 0
    for frame in frames:
        name = frame.filename
        rank = 3 if fn_dir and name.startswith(fn_dir + os.sep) else 2 if root and name.startswith(root + os.sep) else 1
        if rank >= best_rank:
            best, best_rank = (name, frame.lineno), rank
    return best


def _stack(error, frames):
    for most in MAX_STACK_FRAMES:
        text = _format(error, frames, most)
        data = text.encode('utf-8', 'replace')
        if len(data) <= MAX_STACK_BYTES:
            return text
    return data[:MAX_STACK_BYTES].decode('utf-8', 'ignore')


def _format(error, frames, most):
    lines = []
    if frames:
        lines = ['Traceback (most recent call last):\n', *_format_frames(frames, most)]
    try:
        lines += traceback.format_exception_only(type(error), error)
    except Exception:
        lines.append(to_message(error))
    cause = error.__cause__
    if cause is None and not error.__suppress_context__:
        cause = error.__context__
    if cause is not None:
        lines.append('caused by %s\n' % to_message(cause))
        lines += _format_frames(_users_frames(cause), most)
    return ''.join(lines).rstrip('\n')


def _format_frames(frames, most):
    if len(frames) <= most:
        return traceback.format_list(frames)
    half = most // 2
    left_out = '  ... %d more frames ...\n' % (len(frames) - 2 * half)
    return [*traceback.format_list(frames[:half]), left_out, *traceback.format_list(frames[-half:])]
