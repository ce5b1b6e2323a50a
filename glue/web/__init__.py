"""Agents on the web: a chat page, and responses for an app of your own. Needs the extra `[web]`.

from starlette.applications import Starlette
from starlette.routing import Mount, Route

from glue.web import app, sse

async def ask(request):
    return sse(agent.stream(request.query_params["q"]))

site = Starlette(routes=[Route("/ask", ask), Mount("/chat", app(agent))])
"""

from glue.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from glue.web.protocols import ag_ui, vercel
    from glue.web.responses import sse
    from glue.web.site import app

__all__ = ["ag_ui", "app", "sse", "vercel"]

__getattr__, __dir__ = lazy_names(
    __name__, {"protocols": "ag_ui vercel", "responses": "sse", "site": "app"}
)
