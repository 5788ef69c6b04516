"""Signals, children and the C library: what the daemon and its workers ask of the operating system."""

import ctypes
import os
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
#: Memory that a worker may keep for its next large body.
KEPT_BYTES = 8 * 1024 * 1024


#: How often processes are looked for and killed, because those that are killed may just have started others.
KILL_ROUNDS = 100
KILL_ROUND_SECONDS = 0.0005


def load_prctl():
    """The prctl function of this system, None where there is none. Looked up once, before any fork."""
    if not sys.platform.startswith('linux'):
        return None
    try:
        return ctypes.CDLL(None, use_errno=True).prctl
    except (OSError, AttributeError):
        return None


def keep_freed_memory():
    """The allocator of glibc gives large memory back as soon as it is free, and the system takes twice as long to give pages out
    anew as it takes to fill them. Does nothing with other allocators."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES)
    mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)


def adopt_orphans(prctl):
    """Orphans of workers come to this process, which ends them with itself."""
    if prctl is not None:
        prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with(parent_pid, prctl):
    """The kernel kills this process when its parent ends."""
    if prctl is None:
        return
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(0)


def close_all_but(kept):
    """Closes every descriptor but these: none of the daemon's may reach user code."""
    try:
        numbers = [int(name) for name in os.listdir('/dev/fd' if sys.platform == 'darwin' else '/proc/self/fd')]
    except OSError:
        numbers = range(3, 4096)
    for number in numbers:
        if number not in kept:
            try:
                os.close(number)
            except OSError:
                pass


def send_signal(pid, number, uid=None):
    """`uid` is a user that the process may run as: who is not root may signal its own processes only."""
    _as_each(uid, lambda: os.kill(pid, number))


def signal_group(pid, number, uid=None):
    """Signals a process group, also the part of it that runs as the user `uid`."""
    _as_each(uid, lambda: os.killpg(pid, number))


def kill_group(pid, uid=None):
    """Kills a worker and everything in its process group; also one that has not made its group yet."""
    send_signal(pid, signal.SIGKILL, uid)
    signal_group(pid, signal.SIGKILL, uid)


def _as_each(uid, act):
    """Does something twice, as the user `uid` and as the own one: neither alone may signal all processes of a worker. That
    user cannot signal or trace this process meanwhile. Root does it once, being allowed everything."""
    own = os.geteuid()
    for sender in (own,) if uid is None or own in (0, uid) else (uid, own):
        try:
            if sender != own:
                os.seteuid(sender)
            act()
        except OSError:
            pass
        finally:
            if sender != own:
                os.seteuid(own)


def uid_of(pid):
    """The user that a process runs as, None when it is gone."""
    try:
        with open('/proc/%d/status' % pid) as file:
            return next(int(line.split()[1]) for line in file if line.startswith('Uid:'))
    except (OSError, StopIteration, ValueError):
        return None


def children_of(pid):
    """Process ids of the children of a process; none where the system does not tell."""
    found = []
    try:
        names = os.listdir('/proc')
    except OSError:
        return found
    for name in names:
        if not name.isdigit():
            continue
        try:
            with open('/proc/%s/stat' % name, 'rb') as file:
                # The command, in parentheses, may hold anything; the parent is the second field behind it.
                parent = int(file.read().rpartition(b')')[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if parent == pid:
            found.append(int(name))
    return found


def signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return 'signal %d' % number


def kill_children(pid, known=(), spared=()):
    """Kills the `known` children of this process, the others it has but the `spared`, and those that become its children by that."""
    pids = set(known) | set(children_of(pid)).difference(spared)
    # One that cannot be killed, because it became root, is left.
    for _ in range(KILL_ROUNDS):
        if not pids:
            return
        for child in pids:
            send_signal(child, signal.SIGKILL, uid_of(child))
        time.sleep(KILL_ROUND_SECONDS)
        for child in pids:
            try:
                os.waitpid(child, os.WNOHANG)
            except ChildProcessError:
                pass
        pids = set(children_of(pid)).difference(spared)
