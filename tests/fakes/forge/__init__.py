"""A loopback server that answers like GitHub, GitLab or Gitea, and enforces their limits.

The rules follow the documentation of the forges: line positions, sizes, pages, rates and authors.
"""

from fakes.forge.server import FakeForge as FakeForge
from fakes.forge.server import Fault as Fault
from fakes.forge.state import Call as Call
from fakes.forge.state import Pull as Pull

__all__ = ["Call", "FakeForge", "Fault", "Pull"]
