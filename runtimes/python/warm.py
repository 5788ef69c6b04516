"""Modules that handlers often import: loaded once in the daemon, shared by every worker it forks."""

import importlib

MODULES = (
    'asyncio', 'base64', 'calendar', 'codecs', 'collections', 'contextlib', 'contextvars', 'copy', 'csv', 'dataclasses',
    'datetime', 'decimal', 'difflib', 'email.message', 'email.parser', 'enum', 'fnmatch', 'functools', 'glob', 'hashlib',
    'hmac', 'html', 'http.client', 'http.cookies', 'importlib.util', 'inspect', 'io', 'ipaddress', 'itertools', 'json',
    'linecache', 'locale', 'logging', 'math', 'mimetypes', 'operator', 'pathlib', 'pprint', 'queue', 'random', 're',
    'secrets', 'shutil', 'ssl', 'statistics', 'string', 'struct', 'subprocess', 'tempfile', 'textwrap', 'threading',
    'time', 'tokenize', 'traceback', 'types', 'typing', 'unicodedata', 'urllib.parse', 'urllib.request', 'uuid',
    'warnings', 'weakref', 'zlib', 'zoneinfo',
)  # fmt: skip


def preload():
    """Imports them; one that this interpreter was built without is left out."""
    for name in MODULES:
        try:
            importlib.import_module(name)
        except ImportError:
            pass
