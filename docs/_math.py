r"""Formulas on the pages, without a script and without a network.

Docstrings write math as numpydoc does (``.. math::`` and ``:math:``), pages as ``\(...\)`` and ``\[...\]``. The Griffe
extension turns the first into the second; the MkDocs hook turns the second into MathML, which browsers draw themselves.
"""

import re
from html import unescape
from typing import Any

import griffe
from latex2mathml.converter import convert

_DIRECTIVE = re.compile(
    r"^([ \t]*)\.\. math::[ \t]*(\S.*)?\n((?:\1[ \t]+\S.*\n|[ \t]*\n(?=\1[ \t]+\S))*)", re.MULTILINE
)
_ROLE = re.compile(r":math:`([^`]+)`")
_CITED = re.compile(r"\[(\w+)\]_")
_REFERENCE = re.compile(r"^([ \t]*)\.\. \[(\w+)\][ \t]+", re.MULTILINE)
_NAMED = re.compile(r":(?:func|class|meth|mod|attr|data):`~?([^`]+)`")
_DOUBLE = re.compile(r"``([^`]+)``")
_PLACED = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def _display(match: re.Match[str]) -> str:
    indent, first, rest = match.groups()
    latex = " ".join(f"{first or ''}\n{rest}".split())
    return f"{indent}\\[{latex}\\]\n\n"


def markdown(docstring: str) -> str:
    """Write the few marks of numpydoc that formulas use as Markdown."""
    text = _DIRECTIVE.sub(_display, docstring + "\n")
    text = _ROLE.sub(r"\\(\1\\)", text)
    text = _NAMED.sub(r"`\1`", text)
    text = _REFERENCE.sub(r"\1\\[\2\\] ", text)
    text = _CITED.sub(r"\\[\1\\]", text)
    return _DOUBLE.sub(r"`\1`", text).rstrip("\n")


def mathml(page: str) -> str:
    """Draw each formula of a built page."""

    def drawn(match: re.Match[str]) -> str:
        return convert(unescape(match[3]), display="inline" if match[2] == "(" else "block")

    return _PLACED.sub(drawn, page)


class NumpydocMath(griffe.Extension):
    """Rewrite each docstring before it is parsed into sections."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:  # noqa: ANN401 - what Griffe passes beside the object
        """Rewrite the docstring of one module, class or function."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def on_page_content(html: str, **_: Any) -> str:  # noqa: ANN401 - what MkDocs passes beside the page
    """MkDocs calls this with each page's HTML."""
    return mathml(html)
