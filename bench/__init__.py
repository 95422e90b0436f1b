"""Benchmarks: agentmqtt and something comparable, alternately, in one run. `./dev bench NAME`."""
