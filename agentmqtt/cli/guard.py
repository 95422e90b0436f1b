"""Starts a program so that it does not outlive who started it: `guard.py FD COMMAND…`, run as a file.

It stays the same process: a watchman is left behind, in a session of its own, that kills the
program's process group when the pipe FD ends without a word (its writer died) and goes when a line
comes. Uses nothing of agentmqtt, so that it starts quickly.
"""

import os
import signal
import sys

DEFAULTS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that shells ignore for what runs in the background, or Python for itself: that would be inherited."""
WATCH = 'read -r word || kill -s KILL -- "-$1"'


def main() -> None:
    pipe, command = int(sys.argv[1]), sys.argv[2:]
    leader = os.getpid()
    child = os.fork()
    if not child:
        if not os.fork():
            _watch(pipe, leader)
        os._exit(0)
    os.waitpid(child, 0)
    os.close(pipe)
    for number in DEFAULTS:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)  # noqa: S606 - as the caller wrote it, without a shell
    except OSError as error:
        os.write(2, f"agentmqtt: cannot start {command[0]}: {error.strerror}\n".encode())
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def _watch(pipe: int, leader: int) -> None:
    """Never returns."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(pipe, 0)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    os.chdir("/")
    words = ["agentmqtt-guard", "-c", WATCH, "agentmqtt-guard", str(leader)]
    os.execv("/bin/sh", words)  # noqa: S606 - a shell is what it becomes, with fixed words


if __name__ == "__main__":
    main()
