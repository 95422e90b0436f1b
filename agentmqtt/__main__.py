"""`python -m agentmqtt` is the command line."""

from agentmqtt.cli import main

main()
