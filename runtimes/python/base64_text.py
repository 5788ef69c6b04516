"""Base64 text of long bodies, by OpenSSL where this interpreter is linked to it: half the time of the library's own.
Page: spec/runtimes/python.md."""

import ctypes
from base64 import b64encode

#: Bytes of a first call of the encoder; what comes out is compared with the library's.
_SAMPLE = bytes(range(256)) + b'\xff'


def load_encoder():
    """OpenSSL's encoder, None where there is none to trust. It is looked up in what `_hashlib` is linked to: the daemon has loaded that
    for functions, so that a call pays for nothing."""
    try:
        import _hashlib

        encode = ctypes.CDLL(_hashlib.__file__).EVP_EncodeBlock
    except (ImportError, OSError, AttributeError):
        return None
    encode.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
    encode.restype = ctypes.c_int
    works = all(_encode(encode, bytearray(_SAMPLE), end) == _by_library(_SAMPLE[end:]) for end in range(4))
    return encode if works else None


def to_base64(body):
    """`body` is bytes, or a view of the end of a bytearray, as the decoder of frames makes it of a large one."""
    if _ENCODE is not None and type(body) is memoryview and type(body.obj) is bytearray and len(body) > 0:
        return _encode(_ENCODE, body.obj, len(body.obj) - len(body))
    return _by_library(body)


def _by_library(body):
    return b64encode(body).decode('ascii')


def _encode(encode, memory, start):
    count = len(memory) - start
    # One byte more: it writes a zero behind the text.
    text = bytearray((count + 2) // 3 * 4 + 1)
    # Both stay where they are as long as these live.
    source, target = ctypes.c_char.from_buffer(memory, start), ctypes.c_char.from_buffer(text)
    written = encode(ctypes.byref(target), ctypes.byref(source), count)
    return str(memoryview(text)[:written], 'ascii')


_ENCODE = load_encoder()
