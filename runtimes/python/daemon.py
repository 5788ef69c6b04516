"""The python daemon: holds a warm interpreter and forks a worker for each `start`. Pages: spec/runtime/daemon.md,
spec/runtime/wire-protocol.md, spec/runtimes/python.md.

    python3 -u daemon.py --socket PATH|unix:PATH|tcp://HOST:PORT [--index N] [--root DIR] [--standalone]
    FNGW_WORKER_MEMORY_MB=N  megabytes a worker may allocate; 0 or unset: no limit

                 control connection (start, stop)           fork
    gateway  ─────────────────────────────────►  daemon  ─────────►  worker ◄── own socket ── gateway
             ◄─────────────────────────────────     ▲                  │
               (started, exited, log)               └── fds 1 and 2 ───┘

It runs no user code, so nothing a function does can hang it. One thread: a second one could hold a lock during a fork.
"""

import os
import sys
import types

# The runtime's modules live in a package of its own: a function's `event.py` or `worker.py` must not meet ours.
sys.dont_write_bytecode = True
_HERE = os.path.dirname(os.path.abspath(__file__))
_package = types.ModuleType('_fngw')
_package.__path__ = [_HERE]
sys.modules['_fngw'] = _package
sys.path[:] = [path for path in sys.path if os.path.abspath(path or '.') != _HERE]

import argparse
import gc
import heapq
import selectors
import signal
import socket
import stat
import time
import traceback

from _fngw import address, sources, warm, wire
from _fngw.control import Control
from _fngw.process import fork_worker, practise_start
from _fngw.user import parse_user
from _fngw.system import adopt_orphans, kill_children, kill_group, load_prctl

ACCEPT_PAUSE_SECONDS = 0.1
#: Seconds without a `start` before the next spare is forked.
SPARE_DELAY_SECONDS = 0.05
#: Seconds for which it counts that no process could be forked: nobody may ask for the next one of a runtime that is down.
TROUBLE_SECONDS = 5


class Daemon:
    """One poll loop over the listening socket, control connections, worker output, child exits and standard input."""

    def __init__(self, given_address, index, memory_mb, standalone):
        self.index = index
        self.pid = os.getpid()
        self.memory_mb = memory_mb
        self.standalone = standalone
        self.selector = selectors.DefaultSelector()
        self.timers = []
        self.timer_count = 0
        self.controls = set()
        self.workers = {}
        self.worker_count = 0
        #: A forked process that waits for the next function, None while there is none.
        self.spare = None
        self.spare_due = 0.0
        #: Who is told of it.
        self.taker = None
        self.is_spare_planned = False
        #: Why no process could be forked last, and until when that counts; None while they can.
        self.trouble = None
        self.running = True
        self.prctl = load_prctl()
        self.listener = address.listen(given_address)
        self.address = address.bound_address(self.listener, given_address)
        self.watch_listener()

    # Loop

    def run(self):
        """Serves until SIGTERM or the end of standard input; leaves no worker and no socket behind."""
        self.watch_signals()
        self.watch_stdin()
        adopt_orphans(self.prctl)
        warm.preload()
        sources.mark_loaded_modules()
        gc.collect()
        gc.freeze()
        gc.disable()
        try:
            while self.running:
                for key, events in self.selector.select(self.next_timeout()):
                    self.handle(key, events)
                self.run_timers()
        finally:
            self.shut_down()

    def handle(self, key, events):
        """A fault of one connection or pipe ends that one, not the workers of everybody."""
        try:
            key.data(events)
        except Exception:
            report(traceback.format_exc())
            owner = getattr(key.data, '__self__', None)
            if owner is not self:
                owner.close()

    def next_timeout(self):
        return None if not self.timers else max(0.0, self.timers[0][0] - time.monotonic())

    def after(self, seconds, callback):
        self.timer_count += 1
        heapq.heappush(self.timers, (time.monotonic() + seconds, self.timer_count, callback))

    def run_timers(self):
        while self.timers and self.timers[0][0] <= time.monotonic():
            heapq.heappop(self.timers)[2]()

    def watch_signals(self):
        self.wake_in, wake_out = socket.socketpair()
        self.wake_out = wake_out
        self.wake_in.setblocking(False)
        wake_out.setblocking(False)
        signal.set_wakeup_fd(wake_out.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self.stop())
        self.selector.register(self.wake_in, selectors.EVENT_READ, self.handle_signals)

    def watch_stdin(self):
        mode = os.fstat(0).st_mode
        if not self.standalone and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            # A gateway holds the other end. A terminal's Ctrl-C reaches the daemon too, but the gateway decides.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            self.selector.register(0, selectors.EVENT_READ, self.read_stdin)
        else:
            signal.signal(signal.SIGINT, lambda *_: self.stop())

    def read_stdin(self, _events):
        try:
            if os.read(0, 4096):
                return
        except InterruptedError:
            return
        except OSError:
            pass
        self.stop()

    def stop(self):
        self.running = False

    # Control connections

    def watch_listener(self):
        self.selector.register(self.listener, selectors.EVENT_READ, self.accept)

    def accept(self, _events):
        try:
            sock, _ = self.listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            # No descriptors left: the pending connection stays readable, so looking again at once would spin.
            report('cannot accept a connection: %s' % error)
            self.selector.unregister(self.listener)
            self.after(ACCEPT_PAUSE_SECONDS, self.watch_listener)
            return
        self.controls.add(Control(self, sock))

    def control_closed(self, control):
        """The workers of a gateway that is gone end with it."""
        self.controls.discard(control)
        if self.taker is control:
            self.taker = None
        if self.spare is not None and self.spare.control is control:
            self.spare = None
        for process in list(self.workers.values()):
            if process.control is control:
                process.kill()

    # Workers

    def start_worker(self, control, start_id, fields):
        """Starts a worker and answers `started` or `error`."""
        try:
            process = self.take_worker(control, parse_user(fields), fields.get('worker'))
        except (OSError, ValueError) as error:
            control.send_error(start_id, 'load', 'cannot start a worker: %s' % error)
            return
        finally:
            self.plan_spare()
        control.workers[process.id] = process
        control.send(wire.STARTED, start_id, {'worker': process.id, 'uri': process.uri, 'pid': process.pid})

    def take_worker(self, control, user, name):
        """The spare that the gateway names because it is connected to it, else the spare or a new process, introduced to its gateway."""
        spare = self.spare
        if isinstance(name, str):
            if spare is None or spare.id != name or spare.control is not control:
                raise ValueError('the worker that waited has ended')
            # Its function may have ended it already: how is told by `exited`, which an error here would come before.
            self.spare = None
            return spare
        self.worker_count += 1
        # One that was offered may have a function already, of which the gateway has not told yet.
        if spare is not None and not spare.is_ahead:
            self.spare = None
        else:
            spare = None
        if spare is not None and not spare.has_ended():
            try:
                spare.introduce(self, control, self.worker_count, user)
                return spare
            except (OSError, ValueError):
                # If it died unused, that says nothing about this function.
                spare.kill()
                self.worker_count += 1
        process = self.fork()
        try:
            process.introduce(self, control, self.worker_count, user)
        except (OSError, ValueError):
            process.kill()
            raise
        return process

    def fork(self):
        try:
            process = fork_worker(self)
        except OSError as error:
            self.trouble = ('cannot start a process: %s' % error, time.monotonic() + TROUBLE_SECONDS)
            self.tell_trouble()
            raise
        self.workers[process.pid] = process
        if self.trouble is not None:
            self.trouble = None
            self.tell_trouble()
        return process

    def tell_trouble(self):
        for control in list(self.controls):
            if control.greeted:
                control.pong(0)

    def plan_spare(self):
        """Forks the next spare when no `start` came for a moment: a first call shall have the processor for itself."""
        self.spare_due = time.monotonic() + SPARE_DELAY_SECONDS
        if not self.is_spare_planned:
            self.is_spare_planned = True
            self.after(SPARE_DELAY_SECONDS, self.add_spare)

    def add_spare(self):
        left = self.spare_due - time.monotonic()
        if left > 0:
            self.after(left, self.add_spare)
            return
        self.is_spare_planned = False
        if self.spare is None and self.running:
            try:
                self.spare = self.fork()
            except OSError:
                # The next `start` will say so, if it still holds.
                return
            if self.taker is None:
                practise_start(self)
            else:
                self.offer_spare()

    def meet(self, control):
        """A gateway is here that may want to know of the spare."""
        if control.takes_ready and address.path_of(self.address) is not None:
            self.taker = control
            if self.spare is not None and not self.spare.is_ahead:
                self.offer_spare()
        self.plan_spare()

    def offer_spare(self):
        """Tells the gateway of the spare, which connects to it at once."""
        spare, control = self.spare, self.taker
        self.worker_count += 1
        try:
            spare.introduce(self, control, self.worker_count, None, is_ahead=True)
        except (OSError, ValueError):
            spare.kill()
            self.spare = None
            return
        control.workers[spare.id] = spare
        control.send(wire.STARTED, 0, {'worker': spare.id, 'uri': spare.uri, 'pid': spare.pid, 'entries': []})

    def stop_worker(self, control, worker_id, grace_ms):
        process = control.workers.get(worker_id)
        if process is None:
            return
        if grace_ms <= 0:
            process.kill()
        elif not process.stopping:
            process.terminate()
            self.after(grace_ms / 1000, lambda: self.workers.get(process.pid) is process and process.kill())

    def handle_signals(self, _events):
        try:
            while self.wake_in.recv(4096):
                pass
        except (BlockingIOError, InterruptedError):
            pass
        self.reap()

    def reap(self):
        """Tells of every worker that ended, once, after the last of its output."""
        while True:
            try:
                pid, status, peak_kib = self.next_exit()
            except ChildProcessError:
                return
            if pid == 0:
                return
            process = self.workers.pop(pid, None)
            if process is self.spare:
                # Not forked again before the next `start`: a broken set-up must not spin.
                self.spare = None
            if process is not None:
                # What it started in sessions of their own has become this process's by its end.
                kill_children(self.pid, spared=self.workers)
                exited = os.WIFEXITED(status)
                self.tell_exit(process, exited, os.WEXITSTATUS(status) if exited else os.WTERMSIG(status), peak_kib)

    def next_exit(self):
        """(pid, wait status, peak memory) of a child that ended, pid 0 when none did; the rest of its group is killed."""
        if not hasattr(os, 'waitid'):
            return _wait(-1)
        # Left as a zombie for a moment: its number, and so its group's, cannot be another process's yet.
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return 0, 0, 0
        if ended.si_pid in self.workers:
            kill_group(ended.si_pid, self.workers[ended.si_pid].uid)
        return _wait(ended.si_pid)

    def tell_exit(self, process, exited, status, peak_kib):
        process.finish()
        control = process.control
        if control in self.controls:
            control.workers.pop(process.id, None)
            control.send(wire.EXITED, 0, process.to_exit(exited, status, peak_kib, self.memory_mb))

    def shut_down(self):
        signal.set_wakeup_fd(-1)
        for process in self.workers.values():
            process.kill()
            address.unlink(process.socket_path)
        self.listener.close()
        path = address.path_of(self.address)
        address.unlink(path)
        if not self.standalone:
            address.remove_folder(path)
        kill_children(self.pid, self.workers)


def _wait(pid):
    ended, status, usage = os.wait4(pid, os.WNOHANG)
    # Of the process that waits for the worker, and so of the worker. In bytes on macOS.
    return ended, status, usage.ru_maxrss // (1024 if sys.platform == 'darwin' else 1)


def report(text):
    print('[fngw python daemon] %s' % text, file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(prog='daemon.py', description='Starts python workers for the gateway.')
    parser.add_argument('--socket', required=True, help='unix:/path, a path, or tcp://host:port')
    parser.add_argument('--index', default='1', help='number of this daemon among those of its runtime')
    parser.add_argument('--root', default=None, help='functions root; shown in process lists')
    parser.add_argument('--standalone', action='store_true', help='do not end with standard input')
    options = parser.parse_args()
    memory = os.environ.get('FNGW_WORKER_MEMORY_MB') or '0'
    if not memory.isdigit():
        report('FNGW_WORKER_MEMORY_MB must be a whole number of megabytes, got %r' % memory)
        return 2
    try:
        daemon = Daemon(options.socket, options.index, int(memory), options.standalone)
    except (OSError, ValueError) as error:
        report('cannot listen on %s: %s' % (options.socket, error))
        return 1
    daemon.run()
    return 0


if __name__ == '__main__':
    sys.exit(main())
