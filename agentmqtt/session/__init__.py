"""One link to the broker, kept alive."""

from agentmqtt.session.link import Presence, Session
from agentmqtt.session.routes import KEEP, Handler, Subscription

__all__ = ["KEEP", "Handler", "Presence", "Session", "Subscription"]
