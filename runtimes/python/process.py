"""A worker as its daemon sees it: fork, socket, stop, kill, end. Page: spec/runtime/daemon.md."""

import gc
import json
import os
import signal
import socket
import traceback

from . import address, guard, wire, worker
from .failure import out_of_memory
from .link import EXIT_MEMORY
from .output import OutputPipe
from .practise import practise_safely, practise_until_told
from .system import die_with, kill_group, signal_group, signal_name
from .user import become, parse_user


#: Signals that end a worker which ran out of memory, and the share of its limit that it must have used then.
MEMORY_SIGNALS = (signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS)
NEARLY_FULL = 0.9


#: Bytes of what a forked process is told of its function's worker.
MAX_TOLD_BYTES = 65536
#: A `start` without a user.
_PRACTICE_START = wire.encode(wire.START, 1, wire.to_header({'key': 'practice', 'runtime': 'python', 'name': 'practice'}))


class WorkerProcess:
    """A forked process, which is a spare until it is told whose worker it is."""

    def __init__(self, pid, channel, out_in, err_in):
        self.pid = pid
        #: None for a spare, as all of these.
        self.id = None
        self.control = None
        self.uri = None
        self.socket_path = None
        #: User that its handler runs as, None for the daemon's.
        self.uid = None
        self.channel = channel
        self.output_fds = {'stdout': out_in, 'stderr': err_in}
        self.pipes = []
        self.stopping = False
        self.killed = False
        #: A gateway was told of it, is connected to it, and has not given it a function yet.
        self.is_ahead = False

    def introduce(self, daemon, control, number, user, is_ahead=False):
        """Tells it where it listens and what it becomes. Its socket is made now: the name of one that waits for its function
        would be there for others to take. Raises OSError or ValueError with the reason why it cannot be."""
        listener, self.uri, self.socket_path = address.listen_for_worker(daemon.address, number)
        self.is_ahead = is_ahead
        self.tell(daemon, control, number, user, listener)

    def tell(self, daemon, control, number, user, listener):
        """Hands it its socket. Raises OSError."""
        gateway = address.peer_of(control.sock)
        told = {'path': self.socket_path, 'user': user, 'gateway': gateway, 'is_ahead': self.is_ahead}
        try:
            socket.send_fds(self.channel, [json.dumps(told).encode()], [listener.fileno()])
        finally:
            listener.close()
            self.channel.close()
            self.id = 'python-%s-%d' % (daemon.index, number)
            self.control = control
            self.uid = user and user[0]
            self.pipes = [OutputPipe(daemon, self, fd, stream) for stream, fd in self.output_fds.items()]
            self.output_fds = {}

    def has_ended(self):
        """True when its end is only not noticed yet."""
        if not hasattr(os, 'waitid'):
            return False
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

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
        self.channel.close()
        for fd in self.output_fds.values():
            os.close(fd)
        self.output_fds = {}
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


def fork_worker(daemon):
    """Forks a process that waits to be told whose worker it is, and returns its WorkerProcess; in that process it never returns.
    Raises OSError with the reason why none could be started."""
    channel, told, opened = _open_channels()
    try:
        pid = os.fork()
    except OSError:
        _close_channels(channel, told, opened)
        raise
    out_in, out_out, err_in, err_out = opened
    if pid == 0:
        _become_worker(daemon, told, out_out, err_out)
    told.close()
    os.close(out_out)
    os.close(err_out)
    return WorkerProcess(pid, channel, out_in, err_in)


def practise_start(daemon):
    """Does what a `start` takes for a process that is none, without a socket that has a name. A fault of it is no reason to start nothing."""
    try:
        channel, told, (out_in, out_out, err_in, err_out) = _open_channels()
    except OSError:
        return
    process = WorkerProcess(0, channel, out_in, err_in)
    try:
        _, _, header, _ = wire.Decoder().feed(_PRACTICE_START)[0]
        process.tell(daemon, _Practice(told), 0, parse_user(wire.parse_header(header)), socket.socket(socket.AF_UNIX))
        wire.encode(wire.STARTED, 0, wire.to_header({'worker': process.id, 'uri': process.uri, 'pid': process.pid}))
    except (OSError, ValueError):
        pass
    finally:
        process.finish()
        _close_channels(told, told, (out_out, err_out))


class _Practice:
    """A gateway that is none."""

    def __init__(self, sock):
        self.sock = sock


def _open_channels():
    """The two ends of what a process is told by, and the pipes of its output. Raises OSError, and then leaves nothing open."""
    channel, told = socket.socketpair()
    opened = []
    try:
        for _ in range(2):
            opened += os.pipe()
    except OSError:
        _close_channels(channel, told, opened)
        raise
    return channel, told, opened


def _close_channels(channel, told, fds):
    for fd in fds:
        os.close(fd)
    channel.close()
    told.close()


def _become_worker(daemon, channel, out_fd, err_fd):
    """The forked side; never returns."""
    code = 70
    try:
        # Nothing of the daemon may be reached by the collector: its sockets' numbers belong to others here.
        gc.enable()
        guard_pid = guard.guard(daemon.pid, daemon.prctl)
        guard.isolate(channel, out_fd, err_fd, daemon.memory_mb)
        has_practised = practise_until_told(channel)
        listener, told = _hear(channel)
        user, gateway = (told[name] and tuple(told[name]) for name in ('user', 'gateway'))
        if told['is_ahead'] and not has_practised:
            practise_safely()
        if user is not None:
            become(user)
            # Once more: with the user's change the kernel cleared the rule that this process ends with its parent.
            die_with(guard_pid, daemon.prctl)
        code = worker.run(listener, told['path'], daemon.memory_mb, gateway, told['is_ahead'])
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    except BaseException:
        try:
            traceback.print_exc()
        except BaseException:
            pass
    finally:
        os._exit(code & 0xFF)


def _hear(channel):
    """(listener, fields) as `introduce` tells them. Ends the process when nobody will."""
    data, fds, _, _ = socket.recv_fds(channel, MAX_TOLD_BYTES, 1)
    channel.close()
    if not data:
        os._exit(0)
    os.set_inheritable(fds[0], False)
    listener = socket.socket(fileno=fds[0])
    listener.setblocking(True)
    return listener, json.loads(data)
