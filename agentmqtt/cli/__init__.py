"""The command line: thin commands over the public API."""

import os
import sys


def main() -> None:
    """Run `agentmqtt`. Exits with 0, 1 for an error, 2 for wrong usage; `run` with its program's code."""
    _fill_streams()
    try:
        import typer  # noqa: F401 - asked for here, so that its absence is said in one line
    except ImportError:
        sys.exit("agentmqtt: the command line needs typer; install it with: pip install 'agentmqtt[cli]'")
    from agentmqtt.cli.app import execute

    sys.exit(execute(sys.argv[1:]))


def _fill_streams() -> None:
    """Whoever started us closed some of them: a socket must not become number 1 or 2."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if name == "stdin" else "w", closefd=False))  # noqa: SIM115
