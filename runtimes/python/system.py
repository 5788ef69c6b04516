"""Signals, children and the C library: what the daemon and its workers ask of the operating system."""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def load_prctl():
    """The prctl function of this system, None where there is none. Looked up once, before any fork."""
    if not sys.platform.startswith('linux'):
        return None
    try:
        return ctypes.CDLL(None, use_errno=True).prctl
    except (OSError, AttributeError):
        return None


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


def send_signal(pid, number):
    try:
        os.kill(pid, number)
    except OSError:
        pass


def signal_group(pid, number):
    try:
        os.killpg(pid, number)
    except OSError:
        pass


def kill_group(pid):
    """Kills a worker and everything in its process group; also one that has not made its group yet."""
    send_signal(pid, signal.SIGKILL)
    signal_group(pid, signal.SIGKILL)


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


def kill_children(pid, known):
    """Kills the `known` children of this process, the others it has, and those that become its children by that."""
    pids = set(known) | set(children_of(pid))
    while pids:
        for child in pids:
            send_signal(child, signal.SIGKILL)
        try:
            for _ in pids:
                os.waitpid(-1, 0)
        except ChildProcessError:
            return
        pids = set(children_of(pid))
