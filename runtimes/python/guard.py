"""A forked process becomes a worker: a process of its own that waits for it, own descriptors, default signals, limits."""

import faulthandler
import os
import resource
import signal
import sys

from .system import adopt_orphans, close_all_but, die_with, keep_freed_memory
from .wire import MIB


def guard(daemon_pid, prctl):
    """Forks the worker proper and returns its parent's number in it. That parent serves it alone, leads its process group, and ends with its
    status: a handler that kills its parent hits nobody else."""
    # No session of its own: where Linux shares the processors out by sessions, each worker would get as much of them as the whole gateway.
    os.setpgid(0, 0)
    die_with(daemon_pid, prctl)
    signal.set_wakeup_fd(-1)
    # A signal to the whole group is meant for the worker: this process stays to report its end.
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    guard_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        die_with(guard_pid, prctl)
        return guard_pid
    # What the worker starts stays below this process, whatever session or parent it gives itself: the daemon finds it there.
    adopt_orphans(prctl)
    close_all_but(())
    ended, status = os.waitpid(-1, 0)
    while ended != pid:
        ended, status = os.waitpid(-1, 0)
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(guard_pid, number)
    os._exit(os.WEXITSTATUS(status))


def isolate(channel, out_fd, err_fd, memory_mb):
    """Makes a freshly forked process a worker: own descriptors, default signals, limits."""
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(out_fd, 1)
    os.dup2(err_fd, 2)
    close_all_but((0, 1, 2, channel.fileno()))
    os.umask(0o022)
    limit_memory(memory_mb)
    keep_freed_memory()
    try:
        with open('/proc/self/oom_score_adj', 'w') as file:
            file.write('1000')
    except OSError:
        pass
    faulthandler.enable(2)


def limit_memory(memory_mb):
    """Bounds private writable memory, so that a hog gets MemoryError. RLIMIT_DATA counts what is really writable;
    RLIMIT_AS would count address space that thread arenas and libraries merely reserve."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory_mb <= 0:
        return
    which = resource.RLIMIT_DATA if sys.platform.startswith('linux') else resource.RLIMIT_AS
    size = memory_mb * MIB
    try:
        resource.setrlimit(which, (size, size))
    except (ValueError, OSError):
        pass
