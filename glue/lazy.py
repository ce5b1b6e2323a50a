"""A helper for packages that load their public names at first use, so that imports are fast."""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def lazy_names(
    package: str, homes: "dict[str, str]"
) -> "tuple[Callable[[str], object], Callable[[], list[str]]]":
    """Return the functions `__getattr__` and `__dir__` of a package that loads names at first use.

    >>> __getattr__, __dir__ = lazy_names(__name__, {"agent": "Agent", "limits": "Limits Outcome"})

    Args:
        package: the name of the package.
        homes: the names that each module of the package defines, separated by spaces.
    """
    names = {name: home for home, group in homes.items() for name in group.split()}

    def load(name: str) -> object:
        if name not in names:
            # The same message as Python's own.
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(__import__(f"{package}.{names[name]}", fromlist=[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *names})

    return load, list_names
