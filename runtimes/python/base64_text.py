"""Base64 text of long bodies, by OpenSSL where this interpreter is linked to it: half the time of the library's own.
Page: spec/runtimes/python.md."""

import ctypes
from base64 import b64encode

#: Bytes of a first call of the encoder; what comes out is compared with the library's.
_SAMPLE = bytes(range(256)) + b'\xff'
_MOST_ASCII = 127


def load_encoder():
    """A function of memory and where it begins, None where there is none to trust. OpenSSL's encoder is looked up in what `_hashlib` is
    linked to: the daemon has loaded that for functions, so that a call pays for nothing."""
    try:
        import _hashlib

        encoder = _to_encoder(ctypes.CDLL(_hashlib.__file__).EVP_EncodeBlock, ctypes.pythonapi)
    except (ImportError, OSError, AttributeError):
        return None
    works = all(encoder(bytearray(_SAMPLE), end) == _by_library(_SAMPLE[end:]) for end in range(4))
    return encoder if works else None


def to_base64(body):
    """`body` is bytes, or a view of the end of a bytearray, as the decoder of frames makes it of a large one."""
    if _ENCODE is not None and type(body) is memoryview and type(body.obj) is bytearray and len(body) > 0:
        return _ENCODE(body.obj, len(body.obj) - len(body))
    return _by_library(body)


def _by_library(body):
    return b64encode(body).decode('ascii')


def _to_encoder(encode, api):
    """The text is written where the string will have it. A string that nobody else has seen yet may be written to; one of ASCII is its
    own UTF-8, with room for the zero that the encoder writes behind the text."""
    encode.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
    encode.restype = ctypes.c_int
    # Prototypes of our own: what others set on the shared ones does not count here.
    new_string = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_ssize_t, ctypes.c_uint32)(('PyUnicode_New', api))
    characters_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(('PyUnicode_AsUTF8', api))

    def to_text(memory, start):
        count = len(memory) - start
        text = new_string((count + 2) // 3 * 4, _MOST_ASCII)
        # It stays where it is as long as this lives.
        source = ctypes.c_char.from_buffer(memory, start)
        encode(characters_of(text), ctypes.byref(source), count)
        return text

    return to_text


_ENCODE = load_encoder()
