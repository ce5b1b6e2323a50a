"""Ready-made tools for files, git, shell commands, the web and MCP servers.

Each kind is a module or package of its own: `glue.tools.fs`, `git`, `shell`, `coding`, `fetch`,
`mcp`. The names below are shortcuts to plain functions and classes of these modules.
"""

from glue.lazy import lazy_names
from glue.toolnames import register_tool_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from glue.tools.fs import Blocklist as Blocklist
    from glue.tools.fs import Root as Root
    from glue.tools.fs import safe_join as safe_join
    from glue.tools.fs import safe_open as safe_open
    from glue.tools.fs import truncate as truncate
    from glue.tools.git import Repo as Repo
    from glue.tools.git import build_pathspec as build_pathspec
    from glue.tools.git import run_git as run_git

_HOMES = {"fs": "Blocklist Root safe_join safe_open truncate", "git": "Repo build_pathspec run_git"}
__all__ = sorted(" ".join(_HOMES.values()).split())

__getattr__, __dir__ = lazy_names(__name__, _HOMES)

# Permission rules may name these tools even if an agent does not have them.
register_tool_names(
    *"read_file list_dir find_files grep write_file edit_file".split(),
    *"git_diff_branch git_log_branch git_show git_blame git_status git_diff_worktree".split(),
    *"shell shell_job fetch_url web_search".split(),
)
