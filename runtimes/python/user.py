"""The user that a worker runs as, where the gateway keeps functions apart by users. Page: spec/runtime/isolation.md."""

import os
import sys


def parse_user(fields):
    """(uid, folder) of a `start`, None when it names no user. Raises ValueError with the reason why it cannot be done."""
    user = fields.get('user')
    if user is None:
        return None
    uid = user.get('uid') if isinstance(user, dict) else None
    folder = user.get('folder') if isinstance(user, dict) else None
    if isinstance(uid, bool) or not isinstance(uid, int) or uid < 1 or not isinstance(folder, str):
        raise ValueError('user must have uid, above 0, and folder')
    if os.geteuid() != 0:
        raise ValueError('a worker cannot run as user %d: the daemon is not root' % uid)
    return uid, folder


def become(user):
    """Gives up root for good. What the worker did before is the product's own; what follows may be a function's."""
    uid, folder = user
    os.umask(0o077)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    private = os.path.join(folder, 'tmp')
    os.environ.update({'HOME': private, 'TMPDIR': private})
    for name in ('TMP', 'TEMP', 'USER', 'LOGNAME'):
        os.environ.pop(name, None)
    tempfile = sys.modules.get('tempfile')
    if tempfile is not None:
        # It remembers the folder of its first question.
        tempfile.tempdir = None
