"""The bundled MQTT 3.1.1 broker: amqtt's shell, our engine."""

try:
    import amqtt  # noqa: F401 - only to say what to install
except ImportError as error:
    raise ImportError("the bundled broker needs its extra: pip install 'agentmqtt[broker]'") from error

from agentmqtt.broker.limits import Address, BrokerSettings, Limits
from agentmqtt.broker.local import LocalTransport
from agentmqtt.broker.server import Broker

__all__ = ["Address", "Broker", "BrokerSettings", "Limits", "LocalTransport"]
