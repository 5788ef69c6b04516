"""The user that a worker runs as, where the gateway keeps functions apart by users. Page: spec/runtime/isolation.md."""

import os
import sys

#: Of Linux: CAP_SETGID and CAP_SETUID.
_NEEDED_CAPABILITIES = 1 << 6 | 1 << 7


def parse_user(fields):
    """(uid, folder) of a `start`, None when it names no user. Raises ValueError with the reason why it cannot be done."""
    user = fields.get('user')
    if user is None:
        return None
    uid = user.get('uid') if isinstance(user, dict) else None
    folder = user.get('folder') if isinstance(user, dict) else None
    if isinstance(uid, bool) or not isinstance(uid, int) or uid < 1 or not isinstance(folder, str):
        raise ValueError('user must have uid, above 0, and folder')
    if not _can_change_user():
        raise ValueError('a worker cannot run as user %d: the daemon has neither root nor CAP_SETUID and CAP_SETGID' % uid)
    return uid, folder


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
    uid, folder = user
    os.umask(0o077)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    # The kernel takes all capabilities from a process that stops being root, so it becomes root first.
    if os.geteuid() != 0:
        os.setresuid(0, 0, 0)
    os.setresuid(uid, uid, uid)
    private = os.path.join(folder, 'tmp')
    os.environ.update({'HOME': private, 'TMPDIR': private})
    for name in ('TMP', 'TEMP', 'USER', 'LOGNAME'):
        os.environ.pop(name, None)
    tempfile = sys.modules.get('tempfile')
    if tempfile is not None:
        # The module keeps the folder that it found first, which is that of another user.
        tempfile.tempdir = None
