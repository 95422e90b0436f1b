"""The command line: thin commands over the public API."""

import sys


def main() -> None:
    """Run `agentmqtt`. Exits with 0, 1 for an error, 2 for wrong usage; `run` with its program's code."""
    try:
        import typer  # noqa: F401 - asked for here, so that its absence is said in one line
    except ImportError:
        sys.exit("agentmqtt: the command line needs typer; install it with: pip install 'agentmqtt[cli]'")
    from agentmqtt.cli.app import execute

    sys.exit(execute(sys.argv[1:]))
