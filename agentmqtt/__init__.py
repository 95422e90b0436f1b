"""Channels by name over MQTT: owner and watchers meet on a workflow ID, and both resume."""
