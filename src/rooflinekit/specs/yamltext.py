"""YAML text to plain data; apart, so that PyYAML is loaded only when a file is read."""

import re
from typing import Any

import yaml

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]  # one of two classes, by how PyYAML was built
    """A safe loader that refuses a key given twice: YAML would silently take the last."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:  # noqa: ANN401, FBT001, FBT002 - PyYAML's own
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise yaml.constructor.ConstructorError(None, None, f"key `{twice}` is given twice", node.start_mark)
        return super().construct_mapping(node, deep=deep)


#: YAML 1.1 reads 032 as octal and 1:30 as sexagesimal: here they are text, which is refused where a number belongs.
_INTEGER = "tag:yaml.org,2002:int"
_Loader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in resolvers if tag != _INTEGER]
    for first, resolvers in _Base.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_INTEGER, re.compile(r"[-+]?(0|[1-9][0-9_]*)$"), list("-+0123456789"))


def parse(text: str) -> Any:  # noqa: ANN401 - whatever the text holds
    """Parse YAML, or raise a ValueError with the first line of what is wrong and where."""
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader, the C one where PyYAML was built with it
    except yaml.YAMLError as error:
        raise ValueError(_first_line(error)) from None


def _first_line(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    line = f" in line {mark.line + 1}" if mark else ""
    return f"{getattr(error, 'problem', None) or str(error).splitlines()[0]}{line}"
