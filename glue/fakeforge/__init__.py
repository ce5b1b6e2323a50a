"""A loopback server that answers like GitHub, GitLab or Gitea, and enforces their limits: `glue.testing.FakeForge`.

The rules are written by hand after the forges' documentation: line positions, sizes, pages, rates and authors.
"""

from glue.fakeforge.server import FakeForge as FakeForge
from glue.fakeforge.server import Fault as Fault
from glue.fakeforge.state import Call as Call
from glue.fakeforge.state import Pull as Pull

__all__ = ["Call", "FakeForge", "Fault", "Pull"]
