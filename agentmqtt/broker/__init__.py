"""The bundled MQTT 3.1.1 broker: amqtt's shell, our engine."""

from agentmqtt.broker.limits import Address, BrokerSettings, Limits
from agentmqtt.broker.local import LocalTransport
from agentmqtt.broker.server import Broker

__all__ = ["Address", "Broker", "BrokerSettings", "Limits", "LocalTransport"]
