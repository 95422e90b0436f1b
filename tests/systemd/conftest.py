"""The command line's fixtures."""

from tests.cli.conftest import alone, inside

__all__ = ["alone", "inside"]
