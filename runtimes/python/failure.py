"""An exception as the fields of an `error` frame: message, file, line, stack, hint."""

import os
import traceback

MAX_MESSAGE_CHARS = 4096
MAX_STACK_CHARS = 16384
#: Frames shown of a long stack: the outermost and innermost ones carry the news.
MAX_STACK_FRAMES = 40

_OWN_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep
_MACHINERY = '<frozen importlib'


class LoadError(Exception):
    """The function cannot be loaded; `fields` go into the `error` frame."""

    def __init__(self, message, **fields):
        super().__init__(message)
        self.fields = {'code': 'load', 'message': message, **fields}


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
    return message if len(message) <= MAX_MESSAGE_CHARS else message[:MAX_MESSAGE_CHARS] + '...'


def shorten_path(path, root):
    """A path below the functions root without the root, any other path as it is."""
    return path[len(root) + 1 :] if root and path.startswith(root + os.sep) else path


def describe(code, error, root, fn_dir):
    """Fields of an `error` frame for an exception of user code, without the frames of this runtime."""
    trace = _user_part(error.__traceback__)
    fields = {'code': code, 'message': to_message(error)}
    if isinstance(error, SyntaxError) and error.filename:
        place = (error.filename, error.lineno)
        fields['message'] = error.msg
    else:
        place = _place(trace, fn_dir, root)
    if place is not None:
        fields['file'] = shorten_path(place[0], root)
        if place[1] is not None:
            fields['line'] = place[1]
    fields['stack'] = _stack(error, trace)
    return fields


def _user_part(trace):
    """The traceback from the first frame that is not the runtime's own or the import machinery's."""
    at = trace
    while at is not None:
        name = at.tb_frame.f_code.co_filename
        if not name.startswith((_OWN_FOLDER, _MACHINERY)):
            return at
        at = at.tb_next
    return None


def _place(trace, fn_dir, root):
    """(file, line) of the innermost frame in the function's folder, else below the root, else of any."""
    best, best_rank = None, 0
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        installed = os.sep + '.deps' + os.sep in name
        rank = 1
        if not installed and fn_dir and name.startswith(fn_dir + os.sep):
            rank = 3
        elif not installed and root and name.startswith(root + os.sep):
            rank = 2
        if not name.startswith((_OWN_FOLDER, '<')) and rank >= best_rank:
            best, best_rank = (name, trace.tb_lineno), rank
        trace = trace.tb_next
    return best


def _stack(error, trace):
    frames = traceback.extract_tb(trace) if trace is not None else []
    frames = [frame for frame in frames if not frame.filename.startswith(_MACHINERY)]
    if len(frames) > MAX_STACK_FRAMES:
        half = MAX_STACK_FRAMES // 2
        lines = traceback.format_list(frames[:half])
        lines.append('  ... %d more frames ...\n' % (len(frames) - 2 * half))
        lines += traceback.format_list(frames[-half:])
    else:
        lines = traceback.format_list(frames)
    if lines:
        lines.insert(0, 'Traceback (most recent call last):\n')
    lines += traceback.format_exception_only(type(error), error)
    cause = error.__cause__
    if cause is None and not error.__suppress_context__:
        cause = error.__context__
    if cause is not None:
        lines.append('caused by %s\n' % to_message(cause))
        inner = _user_part(cause.__traceback__)
        if inner is not None:
            lines += traceback.format_list(traceback.extract_tb(inner)[-MAX_STACK_FRAMES:])
    text = ''.join(lines).rstrip('\n')
    return text if len(text) <= MAX_STACK_CHARS else text[:MAX_STACK_CHARS] + '...'
