"""The user that a worker runs as, where the gateway keeps functions apart by users. Page: spec/runtime/isolation.md."""

import os
import resource
import sys

#: Of Linux: CAP_SETGID and CAP_SETUID.
_NEEDED_CAPABILITIES = 1 << 6 | 1 << 7
#: Of each process, as prlimit names them.
_LIMITS = {'nproc': resource.RLIMIT_NPROC, 'nofile': resource.RLIMIT_NOFILE, 'fsize': resource.RLIMIT_FSIZE}


def parse_user(fields):
    """(uid, folder, limits) of a `start`, None when it names no user. Raises ValueError with the reason why it cannot be done."""
    user = fields.get('user')
    if user is None:
        return None
    uid = user.get('uid') if isinstance(user, dict) else None
    folder = user.get('folder') if isinstance(user, dict) else None
    limits = user.get('limits', {}) if isinstance(user, dict) else None
    if isinstance(uid, bool) or not isinstance(uid, int) or uid < 1 or not isinstance(folder, str):
        raise ValueError('user must have uid, above 0, and folder')
    if not isinstance(limits, dict) or not all(name in _LIMITS and type(value) is int for name, value in limits.items()):
        raise ValueError('user.limits must have whole numbers named %s' % ', '.join(_LIMITS))
    if not _can_change_user():
        raise ValueError('a worker cannot run as user %d: the daemon has neither root nor CAP_SETUID and CAP_SETGID' % uid)
    return uid, folder, limits


def _can_change_user():
    if os.geteuid() == 0:
        return True
    try:
        with open('/proc/self/status') as file:
            effective = next(line for line in file if line.startswith('CapEff:'))
    except (OSError, StopIteration):
        return False
    return int(effective.split()[1], 16) & _NEEDED_CAPABILITIES == _NEEDED_CAPABILITIES


def become(user):
    """Gives up root, or the capabilities to become anybody, for good. What the worker did before is the product's own; what
    follows may be a function's."""
    uid, folder, limits = user
    os.umask(0o077)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    # The kernel takes all capabilities from a process that stops being root, so it becomes root first.
    if os.geteuid() != 0:
        os.setresuid(0, 0, 0)
    os.setresuid(uid, uid, uid)
    # As the user: of the daemon's there may be more processes than one function may have.
    for name, value in limits.items():
        hard = resource.getrlimit(_LIMITS[name])[1]
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(_LIMITS[name], (most, most))
    private = os.path.join(folder, 'tmp')
    os.environ.update({'HOME': private, 'TMPDIR': private})
    for name in ('TMP', 'TEMP', 'USER', 'LOGNAME'):
        os.environ.pop(name, None)
    tempfile = sys.modules.get('tempfile')
    if tempfile is not None:
        # The module keeps the folder that it found first, which is that of another user.
        tempfile.tempdir = None
