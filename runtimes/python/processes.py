"""Signals and children of processes."""

import os
import signal


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
