"""Packages that load their public names at first use, so that importing one costs next to nothing."""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def lazy_names(package: str, homes: "dict[str, str]") -> "tuple[Callable[[str], object], Callable[[], list[str]]]":
    """Make a package's `__getattr__` and `__dir__`, given the names that each of its modules holds."""
    names = {name: home for home, group in homes.items() for name in group.split()}

    def load(name: str) -> object:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(__import__(f"{package}.{names[name]}", fromlist=[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *names})

    return load, list_names
