"""Split GGUF files: the first part holds the keys, each part its own tensors."""

import re
from pathlib import Path

from rooflinekit.errors import SpecError
from rooflinekit.specs.gguf.header import Header, read_header

_PART = re.compile(r"(?P<stem>.+)-(?P<part>\d{5})-of-(?P<parts>\d{5})\.gguf", re.IGNORECASE)
_MOST_NAMED = 4


def read_parts(path: Path) -> Header:
    """Read a file's header, or those of all parts where it is one of several; all parts have to be there."""
    paths = part_paths(path)
    missing = [part.name for part in paths if not part.is_file()]
    if len(paths) > 1 and missing:
        named = ", ".join(missing[:_MOST_NAMED]) + (", ..." if len(missing) > _MOST_NAMED else "")
        message = f"{path}: {len(missing)} of its {len(paths)} parts are not beside it ({named}): add them"
        raise SpecError(message)
    headers = [read_header(part) for part in paths]
    _check_count(path, headers)
    return headers[0]._replace(path=path, tensors=tuple(tensor for header in headers for tensor in header.tensors))


def part_paths(path: Path) -> tuple[Path, ...]:
    """Give the paths of all parts, by the names that splitting gives them; the file alone where it is whole.

    >>> [part.name for part in part_paths(Path("m-00002-of-00003.gguf"))]
    ['m-00001-of-00003.gguf', 'm-00002-of-00003.gguf', 'm-00003-of-00003.gguf']
    """
    match = _PART.fullmatch(path.name)
    if match is None:
        return (path,)
    count = int(match["parts"])
    names = (f"{match['stem']}-{part:05d}-of-{count:05d}.gguf" for part in range(1, count + 1))
    return tuple(path.with_name(name) for name in names) or (path,)


def _check_count(path: Path, headers: list[Header]) -> None:
    """Compare parts and tensors with the numbers that the first part gives."""
    keys = headers[0].keys
    parts, tensors = keys.get("split.count", len(headers)), sum(len(header.tensors) for header in headers)
    if parts not in (0, len(headers)):
        message = f"{path}: is one of {parts} parts, but {len(headers)} bear its name: name them -00001-of-0000N.gguf"
        raise SpecError(message)
    expected = keys.get("split.tensors.count", tensors)
    if expected != tensors:
        message = f"{path}: `split.tensors.count` = {expected}, but the parts hold {tensors} tensors"
        raise SpecError(message)
