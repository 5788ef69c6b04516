"""A worker as its daemon sees it: socket bound ahead, fork, stop, kill, end. Page: spec/runtime/daemon.md."""

import gc
import os
import signal
import traceback

from . import address, guard, worker
from .failure import out_of_memory
from .link import EXIT_MEMORY
from .output import OutputPipe
from .system import die_with, kill_group, signal_group, signal_name
from .user import become


#: Signals that end a worker which ran out of memory, and the share of its limit that it must have used then.
MEMORY_SIGNALS = (signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS)
NEARLY_FULL = 0.9


class WorkerProcess:
    """A started worker."""

    def __init__(self, worker_id, pid, control, uri, socket_path, uid):
        self.id = worker_id
        self.pid = pid
        self.control = control
        self.uri = uri
        self.socket_path = socket_path
        #: User that its handler runs as, None for the daemon's.
        self.uid = uid
        self.pipes = []
        self.stopping = False
        self.killed = False

    def terminate(self):
        """Asks it, and what it started, to end."""
        self.stopping = True
        signal_group(self.pid, signal.SIGTERM, self.uid)

    def kill(self):
        self.stopping = True
        self.killed = True
        kill_group(self.pid, self.uid)

    def finish(self):
        """After its end: passes on what it wrote last, removes its socket."""
        for pipe in self.pipes:
            pipe.finish()
        address.unlink(self.socket_path)

    def to_exit(self, exited, status, peak_kib, memory_mb):
        """Fields of `exited`; `status` is the exit code, or the number of the signal that ended it; `peak_kib` the most
        memory that the worker had resident."""
        name = None if exited else signal_name(status)
        if self.stopping:
            reason = 'killed' if self.killed and not exited else 'stopped'
        elif exited:
            reason = 'exited with code %d' % status
            if status == EXIT_MEMORY:
                reason = out_of_memory(memory_mb)
        else:
            reason = 'ended by %s' % name
            # Libraries that get no memory abort or crash; the kernel, when all memory is used up, kills.
            if status in MEMORY_SIGNALS and memory_mb and peak_kib >= memory_mb * 1024 * NEARLY_FULL:
                reason = '%s (%s)' % (out_of_memory(memory_mb), reason)
            elif status == signal.SIGKILL:
                reason += ', perhaps out of memory'
        return {'worker': self.id, 'code': status if exited else None, 'signal': name, 'reason': reason}


def fork_worker(daemon, control, number, user):
    """Binds a worker's socket, forks it, lets it become the user if there is one, and returns its WorkerProcess; in the worker it never returns.
    Raises OSError or ValueError with the reason why none could be started."""
    listener, uri, socket_path = address.listen_for_worker(daemon.address, control.sock, number)
    gateway = address.peer_of(control.sock)
    opened = []
    try:
        for _ in range(2):
            opened += os.pipe()
        pid = os.fork()
    except OSError:
        for fd in opened:
            os.close(fd)
        listener.close()
        address.unlink(socket_path)
        raise
    out_in, out_out, err_in, err_out = opened
    if pid == 0:
        _become_worker(daemon, listener, out_out, err_out, socket_path, user, gateway)
    listener.close()
    os.close(out_out)
    os.close(err_out)
    process = WorkerProcess('python-%s-%d' % (daemon.index, number), pid, control, uri, socket_path, user and user[0])
    process.pipes = [OutputPipe(daemon, process, out_in, 'stdout'), OutputPipe(daemon, process, err_in, 'stderr')]
    return process


def _become_worker(daemon, listener, out_fd, err_fd, socket_path, user, gateway):
    """The forked side; never returns."""
    code = 70
    try:
        # Nothing of the daemon may be reached by the collector: its sockets' numbers belong to others here.
        gc.enable()
        listener.setblocking(True)
        guard_pid = guard.guard(daemon.pid, daemon.prctl)
        guard.isolate(listener, out_fd, err_fd, daemon.memory_mb)
        if user is not None:
            become(user)
            # Once more: with the user's change the kernel cleared the rule that this process ends with its parent.
            die_with(guard_pid, daemon.prctl)
        code = worker.run(listener, socket_path, daemon.memory_mb, gateway)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    except BaseException:
        try:
            traceback.print_exc()
        except BaseException:
            pass
    finally:
        os._exit(code & 0xFF)
