"""Stands in for a service manager: opens listening sockets, keeps them, and starts programs that get them.

Arguments: a name for each socket; "unix" is a socket in a file. Standard input: one JSON object a line, {"argv", "env", "cwd"}.
Standard output: "holder ports ...", "holder started PID" and "holder ended PID CODE", and whatever the programs print.
"""
import fcntl
import json
import os
import socket
import sys
import tempfile
import threading


def open_socket(name):
    if name == "unix":
        opened = socket.socket(socket.AF_UNIX)
        opened.bind(os.path.join(tempfile.mkdtemp(prefix="fngw-test-"), "s"))
    else:
        opened = socket.socket()
        opened.bind(("127.0.0.1", 0))
    opened.listen(1024)
    return opened


def say(*words):
    os.write(1, (" ".join(str(word) for word in ("holder", *words)) + "\n").encode())


def start(order):
    pid = os.fork()
    if pid == 0:
        # Above all that are wanted, so that none is overwritten before it is copied.
        high = [fcntl.fcntl(one.fileno(), fcntl.F_DUPFD, 100) for one in sockets]
        for at, fd in enumerate(high):
            os.dup2(fd, 3 + at)
            os.close(fd)
        env = dict(order["env"], LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(sockets)), LISTEN_FDNAMES=":".join(names))
        # What it is told is not for them.
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(order["cwd"])
        os.execve(order["argv"][0], order["argv"], env)
    say("started", pid)
    threading.Thread(target=wait, args=(pid,), daemon=True).start()


def wait(pid):
    _, status = os.waitpid(pid, 0)
    say("ended", pid, os.waitstatus_to_exitcode(status))


names = sys.argv[1:]
sockets = [open_socket(name) for name in names]
say("ports", *(one.getsockname()[1] if one.family == socket.AF_INET else 0 for one in sockets))
for line in sys.stdin:
    start(json.loads(line))
