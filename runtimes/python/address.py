"""Listening sockets of the daemon and its workers: `unix:/path` or `tcp://host:port`."""

import os
import re
import socket
import stat
import struct

#: Longest path of a unix socket, bytes without the final zero.
MAX_PATH_BYTES = 107 if os.uname().sysname == 'Linux' else 103
BACKLOG = 128
#: Hosts that other machines do not reach.
_LOOPBACK = re.compile(r'127\.\d+\.\d+\.\d+|::1|localhost', re.IGNORECASE)


def path_of(address):
    """The path of a unix address, None for tcp."""
    if address.startswith('tcp:'):
        return None
    return address[5:] if address.startswith('unix:') else address


def _tcp(address):
    host, _, port = address[len('tcp://') :].rpartition(':')
    if not address.startswith('tcp://') or not host or not port.isdigit() or int(port) > 65535:
        raise ValueError('an address is unix:/path or tcp://host:port')
    host = host.strip('[]')
    if not _LOOPBACK.fullmatch(host):
        raise ValueError('it can be reached from other machines, and nobody has to prove anything here: use fngw daemon')
    return host, int(port)


def listen(address):
    """A non-blocking listening socket. Raises OSError or ValueError with a reason.

    A socket file that nobody listens on any more is replaced; a living one is refused."""
    path = path_of(address)
    if path is None:
        return _listen_tcp(*_tcp(address))
    if _is_stale(path):
        os.unlink(path)
    return _listen_unix(path)


def bound_address(listener, address):
    """The address with the port the system chose."""
    if path_of(address) is not None:
        return address
    return _to_uri(*listener.getsockname()[:2])


def listen_for_worker(address, number):
    """(listener, uri, path or None) for a new worker, next to the daemon's own socket."""
    path = path_of(address)
    if path is not None:
        base = path[:-5] if path.endswith('.sock') else path
        path = '%s-w%d.sock' % (base, number)
        unlink(path)
        return _listen_unix(path), 'unix:' + path, path
    host, _ = _tcp(address)
    listener = _listen_tcp(host, 0)
    return listener, _to_uri(host, listener.getsockname()[1]), None


def peer_of(connection):
    """(process, user, group) at the other end of a unix socket, as the system tells it; None where it does not."""
    option = getattr(socket, 'SO_PEERCRED', None)
    if option is None or connection.family != socket.AF_UNIX:
        return None
    try:
        return struct.unpack('3i', connection.getsockopt(socket.SOL_SOCKET, option, struct.calcsize('3i')))
    except OSError:
        return None


def unlink(path):
    if path is not None:
        try:
            os.unlink(path)
        except OSError:
            pass


def remove_folder(path):
    """Removes the private folder of a gateway that is gone, once the last daemon in it has ended."""
    folder = os.path.dirname(path or '')
    if re.fullmatch('fngw-[A-Za-z0-9]{6}', os.path.basename(folder)):
        try:
            os.rmdir(folder)
        except OSError:
            pass


def _listen_unix(path):
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise ValueError('the socket path is longer than %d bytes: %s' % (MAX_PATH_BYTES, path))
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(path)
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(before)
    return _start(listener)


def _listen_tcp(host, port):
    family, kind, proto, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    listener = socket.socket(family, kind, proto)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
    except OSError:
        listener.close()
        raise
    return _start(listener)


def _start(listener):
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


def _to_uri(host, port):
    return 'tcp://[%s]:%d' % (host, port) if ':' in host else 'tcp://%s:%d' % (host, port)


def _is_stale(path):
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise ValueError('%s exists and is no socket' % path)
    except FileNotFoundError:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except OSError:
            return True
    raise ValueError('another process listens on %s' % path)
