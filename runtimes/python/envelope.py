"""A handler's return value as a reply: head (JSON bytes of a `reply` header) and body.
Source: Handler response; page spec/invocation/response.md."""

import base64
import binascii
import functools
import io
import json
import re

from . import wire

TEXT = 'text/plain; charset=utf-8'
JSON = 'application/json'
BINARY = 'application/octet-stream'
#: Bytes read at once from a file that is returned as a body.
FILE_CHUNK_BYTES = 65536
#: Characters of a value shown in a message.
MAX_SHOWN_CHARS = 60

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")
_BAD_VALUE = re.compile('[^\t\x20-\x7e\x80-\xff]')
_BYTES = (bytes, bytearray, memoryview)
_ENVELOPE_KEYS = frozenset(('status', 'statusCode', 'proxy', 'body_base64'))


class ContractError(Exception):
    """The answer breaks the response contract; becomes 502."""


class Stream:
    """A body that comes piece by piece from an iterator or async iterator."""

    __slots__ = ('status', 'headers', 'pieces')

    def __init__(self, status, headers, pieces):
        self.status = status
        self.headers = headers
        self.pieces = pieces

    @property
    def is_async(self):
        return not hasattr(self.pieces, '__next__')

    @property
    def wants_first(self):
        """True when the head waits for the first piece: its type is unknown, or an early failure can still be a 500."""
        return not str(_content_type(self.headers)).startswith('text/event-stream')

    def head(self, first):
        """Head bytes; `first` is the first piece, None for a stream that ends or begins without one."""
        if _content_type(self.headers) is None:
            self.headers['content-type'] = TEXT if first is None or isinstance(first, str) else BINARY
        return streaming(_head(self.status, self.headers))


def streaming(head, length=None):
    """The head of a reply whose body follows in chunks."""
    more = b',"stream":true}' if length is None else b',"stream":true,"length":%d}' % length
    return head[:-1] + more


def to_piece(piece):
    """One piece of a stream as bytes. Raises ContractError."""
    if isinstance(piece, str):
        return piece.encode('utf-8', 'replace')
    if isinstance(piece, _BYTES):
        return bytes(piece)
    raise ContractError('a piece of a streamed body must be text or bytes, got %s' % _show(piece))


def _refuse(value):
    raise ContractError('the answer holds a %s, which JSON cannot express' % type(value).__name__)


def _make_encoder():
    """json.dumps without the work it repeats for every call; the plain one where the C encoder is missing."""
    from json import encoder

    make = encoder.c_make_encoder
    if make is None:
        return json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(',', ':'), default=_refuse).encode
    quote = encoder.encode_basestring
    encode = make(None, _refuse, quote, None, ':', ',', False, False, False)
    join = ''.join

    def dumps(value):
        if type(value) is str:
            return quote(value)
        return join(encode(value, 0))

    return dumps


_dumps = _make_encoder()


def to_json(value):
    """Compact JSON bytes. Raises ContractError with the type that does not fit."""
    try:
        return _dumps(value).encode('utf-8')
    except UnicodeEncodeError:
        # A lone surrogate has no UTF-8 form, but JSON can escape it.
        return json.dumps(value, allow_nan=False, separators=(',', ':')).encode('ascii')
    except RecursionError:
        raise ContractError('the answer refers to itself or is nested too deep for JSON') from None
    except ValueError as error:
        if 'JSON compliant' in str(error):
            raise ContractError('the answer holds NaN or Infinity, which JSON cannot express') from None
        raise ContractError('the answer cannot be written as JSON: %s' % error) from None
    except TypeError as error:
        raise ContractError('the answer cannot be written as JSON: %s' % error) from None


@functools.lru_cache(maxsize=None)
def _plain_head(status, content_type):
    """The head with nothing but a status and one of our own types; the same text every time, which readers may rely on."""
    return _head(status, {} if content_type is None else {'content-type': content_type})


def _head(status, headers):
    return _checked(wire.to_header({'status': status, 'headers': headers}))


def _checked(head):
    """A head that fits its frame; what `streaming` adds to it is in the margin."""
    if len(head) > wire.LIMITS[wire.REPLY][0] - wire.KIB:
        raise ContractError('status and headers are larger than 512 KiB')
    return head


JSON_HEAD = _plain_head(200, JSON)
EMPTY_HEAD = _plain_head(200, None)
BINARY_HEAD = _plain_head(200, BINARY)


def is_envelope(value):
    """True for a dict that is an envelope, not a JSON body."""
    return not _ENVELOPE_KEYS.isdisjoint(value) or ('headers' in value and 'body' in value)


def to_reply(value, given=None):
    """(head, body) of a return value; `body` is bytes, or a Stream and then `head` is None. Raises ContractError.

    `given` is what `given_of` tells of the call: a base64 text that comes back as it was given is not decoded."""
    if isinstance(value, dict):
        if is_envelope(value):
            return _from_dict(value, given)
        return JSON_HEAD, to_json(value)
    if value is None:
        return EMPTY_HEAD, b''
    if isinstance(value, (str, int, float, list)):
        return JSON_HEAD, to_json(value)
    if isinstance(value, tuple):
        if not 1 <= len(value) <= 3:
            raise ContractError(
                'a tuple must be (body,), (body, status) or (body, status, headers), got %d items' % len(value)
            )
        status = _status(value[1]) if len(value) > 1 else 200
        return _whole(status, value[2] if len(value) > 2 else None, value[0])
    if isinstance(value, _BYTES):
        return BINARY_HEAD, bytes(value)
    if _is_stream(value):
        return None, Stream(200, {}, _pieces(value))
    for name in ('status_code', 'status'):
        if hasattr(value, name):
            body = getattr(value, 'body', None)
            return _whole(_status(getattr(value, name)), getattr(value, 'headers', None), body)
    _refuse(value)


def _from_dict(value, given):
    proxy = value.get('proxy')
    if proxy is not None:
        return _from_proxy(proxy, given)
    if 'status' in value:
        status = _status(value['status'])
    elif 'statusCode' in value:
        status = _status(value['statusCode'])
    else:
        status = 200
    body = value.get('body')
    encoded = value.get('body_base64')
    flag = value.get('is_base64')
    if flag is not None and not isinstance(flag, bool):
        raise ContractError('is_base64 must be true or false, got %s' % _show(flag))
    if value.get('isBase64Encoded') is True and encoded is None:
        if body is not None:
            body = _decode('body', body, given)
    elif encoded is not None:
        if body is None or flag:
            body = _decode('body_base64', encoded, given)
    elif flag:
        raise ContractError('is_base64 is true, but body_base64 is missing')
    return _whole(status, value.get('headers'), body, given)


def _whole(status, headers, body, given=None):
    """(head, body) of a checked status, unchecked headers and a body of any kind."""
    if isinstance(body, str):
        kind, data = TEXT, body.encode('utf-8', 'replace')
    elif body is None:
        kind, data = None, b''
    elif isinstance(body, _BYTES):
        kind, data = BINARY, _steady(body, given)
    elif _is_stream(body):
        return None, Stream(status, _headers(headers), _pieces(body))
    else:
        kind, data = JSON, to_json(body)
    if not headers:
        if headers is not None and not isinstance(headers, dict):
            _headers(headers)
        return _plain_head(status, kind), data
    checked = _headers(headers)
    if kind is not None and _content_type(checked) is None:
        checked['content-type'] = kind
    return _head(status, checked), data


def _steady(data, given):
    """Bytes that nobody changes any more: a copy, except of what cannot change. A read-only view of what others may change can."""
    return data if given is not None and data is given[1] else bytes(data)


def _from_proxy(proxy, given):
    if not isinstance(proxy, dict):
        raise ContractError('proxy must be an object, got %s' % _show(proxy))
    fields = {key: item for key, item in proxy.items() if key not in ('body', 'body_base64', 'is_base64')}
    headers = fields.get('headers')
    if headers is not None:
        fields['headers'] = _headers(headers)
    body = proxy.get('body')
    if proxy.get('body_base64') is not None and (body is None or proxy.get('is_base64') is True):
        data = _decode('proxy.body_base64', proxy['body_base64'], given)
    elif body is None:
        data = b''
    elif isinstance(body, str):
        data = body.encode('utf-8', 'replace')
    elif isinstance(body, _BYTES):
        data = bytes(body)
    else:
        data = to_json(body)
        headers = fields.setdefault('headers', {})
        if _content_type(headers) is None:
            headers['content-type'] = JSON
    return _checked(b'{"proxy":' + to_json(fields) + b'}'), data


def _status(status):
    if isinstance(status, int) and not isinstance(status, bool) and 100 <= status <= 599:
        return int(status)
    if isinstance(status, float) and status.is_integer() and 100 <= status <= 599:
        return int(status)
    raise ContractError('status must be an integer from 100 to 599, got %s' % _show(status))


def _content_type(headers):
    """The value of the content type, however its name is written; None without one."""
    for name, value in headers.items():
        if len(name) == 12 and name.lower() == 'content-type':
            return value
    return None


def _headers(headers):
    """Names as given to a text or a list of texts. Raises ContractError."""
    if headers is None:
        return {}
    if hasattr(headers, 'items'):
        pairs = headers.items()
    elif isinstance(headers, (list, tuple)) and all(isinstance(p, (list, tuple)) and len(p) == 2 for p in headers):
        pairs = headers
    else:
        raise ContractError('headers must be an object, got %s' % _show(headers))
    checked = {}
    for name, value in pairs:
        if not isinstance(name, str) or _NAME.match(name) is None:
            shown = _quote(name) if isinstance(name, str) else _show(name)
            raise ContractError('header name %s is not allowed in HTTP' % shown)
        if value is None:
            continue
        many = isinstance(value, (list, tuple))
        texts = [_header_text(name, item) for item in value] if many else _header_text(name, value)
        if name in checked:
            before = checked[name]
            checked[name] = (before if isinstance(before, list) else [before]) + (texts if many else [texts])
        else:
            checked[name] = texts
    return checked


def _header_text(name, value):
    if isinstance(value, bool):
        value = 'true' if value else 'false'
    elif isinstance(value, (int, float)):
        value = str(value)
    elif not isinstance(value, str):
        rule = 'must be a string, a number, a boolean or a list of them'
        raise ContractError('header "%s" %s, got %s' % (name, rule, _show(value)))
    bad = _BAD_VALUE.search(value)
    if bad is not None:
        raise ContractError(
            'header "%s" holds the character U+%04X, which HTTP does not allow there' % (name, ord(bad.group()))
        )
    return value


def _decode(field, value, given):
    if given is not None and value is given[0]:
        return given[1]
    if isinstance(value, str):
        # Padding may be left out, but not be wrong.
        padding = '' if value.endswith('=') else '=' * (-len(value) % 4)
        try:
            return base64.b64decode(value + padding, validate=True)
        except (binascii.Error, ValueError):
            pass
    raise ContractError('%s must be base64 text, got %s' % (field, _show(value)))


def _is_stream(value):
    return hasattr(value, '__aiter__') or hasattr(value, '__next__')


def _pieces(value):
    """An iterator or async iterator of pieces. A file gives blocks, not lines."""
    if isinstance(value, io.IOBase):
        return _file_pieces(value)
    return value.__aiter__() if hasattr(value, '__aiter__') else value


def _file_pieces(file):
    try:
        while True:
            piece = file.read(FILE_CHUNK_BYTES)
            if not piece:
                return
            yield piece
    finally:
        file.close()


def _show(value):
    """A value and its type for a message, in the words of every runtime: `"200" (string)`, `an array of 2 items`."""
    if value is None:
        return 'null'
    if isinstance(value, str):
        return _quote(_cut(value)) + ' (string)'
    if isinstance(value, bool):
        return ('true' if value else 'false') + ' (boolean)'
    if isinstance(value, (int, float)):
        # An int may have more digits than python is willing to write.
        text = json.dumps(value) if not isinstance(value, int) or value.bit_length() < 1000 else 'a large integer'
        return _cut(text) + ' (number)'
    if isinstance(value, (list, tuple)):
        return 'an array of %d item%s' % (len(value), '' if len(value) == 1 else 's')
    if isinstance(value, dict):
        return 'an object'
    return 'a value of type %s' % type(value).__name__


def _cut(text):
    return text if len(text) <= MAX_SHOWN_CHARS else text[:MAX_SHOWN_CHARS] + '...'


def _quote(text):
    return json.dumps(text, ensure_ascii=False)
