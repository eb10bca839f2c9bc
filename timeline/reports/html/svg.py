"""SVG of matplotlib figures inside a page: classes for styles, variables for colours.

A page whose policy forbids styles in attributes has all of them in its one style sheet.
"""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass, field

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure

from timeline.reports.html.palette import LIGHT

_SVG = "http://www.w3.org/2000/svg"
_HREF = "{http://www.w3.org/1999/xlink}href"
_ROLES = {colour: role for role, colour in LIGHT.items()}
_COLOUR = re.compile(r"#[0-9a-f]{6}\b")
_NUMBER = re.compile(r"-?\d+\.\d+")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_GEOMETRY = ("d", "x", "y", "width", "height", "points")
_PAINT = ("fill", "stroke")
_UPRIGHT = "rotate(-0 "
_UNWANTED = ("}metadata", "}style")
_WANTED = ("part-", "phase-", "heat")
"""How ids begin that drawings give to what a script looks for."""


@dataclass
class StyleSheet:
    """The distinct styles of all pictures of a page, each with a class."""

    classes: dict[str, str] = field(default_factory=dict)

    def name(self, style: str) -> str:
        """The class of a style."""
        return self.classes.setdefault(style, f"s{len(self.classes)}")

    def css(self) -> str:
        """All classes."""
        return "\n".join(f".{name}{{{style}}}" for style, name in self.classes.items())


def inline_svg(
    figure: Figure, name: str, label: str, sheet: StyleSheet, data: Mapping[str, object]
) -> Markup:
    """The picture as an element of a page.

    Args:
        figure: 72 dots an inch, so that a point is a pixel.
        name: begins the ids in the picture.
        label: says in words what it shows.
        sheet: gains its styles.
        data: attributes for a script.
    """
    text = io.StringIO()
    with rc_context({"svg.hashsalt": name}):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    root = ET.fromstring(text.getvalue())
    _Inlining(name, sheet).tidy(root)
    width, height = figure.get_size_inches() * figure.dpi
    root.attrib.clear()
    root.attrib.update(
        {
            "viewBox": f"0 0 {width:g} {height:g}",
            "width": f"{width:g}",
            "height": f"{height:g}",
            "role": "img",
            "aria-label": label,
            **{f"data-{key}": str(value) for key, value in data.items()},
        }
    )
    return Markup(ET.tostring(root, encoding="unicode"))


class _Inlining:
    """Changes one SVG picture so that it can be part of a page."""

    def __init__(self, name: str, sheet: StyleSheet) -> None:
        self._name = name
        self._sheet = sheet
        self._used: set[str] = set()

    def tidy(self, root: ET.Element) -> None:
        """Change all of a picture in place."""
        for parent in list(root.iter()):
            parent[:] = [child for child in parent if not child.tag.endswith(_UNWANTED)]
        for element in root.iter():
            element.tag = element.tag.removeprefix(f"{{{_SVG}}}")
            if element.tag != "text":
                element.text = None
            element.tail = None
            self._restyle(element)
        self._drop_empty(root)

    def _restyle(self, element: ET.Element) -> None:
        declared = [_declaration(text) for text in element.attrib.pop("style", "").split(";")]
        for key, value in list(element.attrib.items()):
            if key == _HREF:
                del element.attrib[key]
                element.set("href", self._referred(value))
            elif key == "id":
                self._identify(element, value)
            elif key in _GEOMETRY:
                element.set(key, " ".join(_NUMBER.sub(_rounded, value).split()))
            elif key in _PAINT and _COLOUR.match(value):
                del element.attrib[key]
                declared.append(f"{key}: {value}")
            elif key == "transform" and value.startswith(_UPRIGHT):
                del element.attrib[key]
            elif key == "clip-path":
                element.set(key, _REFERENCE.sub(self._used_here, value))
        style = "; ".join(filter(None, declared))
        if style:
            style = _COLOUR.sub(_variable, _REFERENCE.sub(self._used_here, style))
            element.set("class", self._sheet.name(style))

    def _identify(self, element: ET.Element, name: str) -> None:
        """An id that is the page's only one, and that a script finds by its beginning."""
        element.set("id", f"{self._name}-{name}")
        if name.startswith(_WANTED):
            self._used.add(f"{self._name}-{name}")

    def _referred(self, value: str) -> str:
        if not value.startswith("#"):
            return value
        self._used.add(f"{self._name}-{value[1:]}")
        return f"#{self._name}-{value[1:]}"

    def _used_here(self, match: re.Match[str]) -> str:
        return f"url({self._referred('#' + match[1])})"

    def _drop_empty(self, root: ET.Element) -> None:
        """Without ids that nothing refers to, groups of nothing, and shapes that nobody sees."""
        nothing = self._sheet.name("fill: none")
        for parent in [*root.iter()][::-1]:
            if parent.get("id") not in self._used:
                parent.attrib.pop("id", None)
            parent[:] = [child for child in parent if _shows(child, nothing)]


def _shows(element: ET.Element, nothing: str) -> bool:
    """Whether it is neither empty nor of the style that fills nothing and has no line."""
    if element.tag in ("g", "defs"):
        return len(element) > 0
    return element.tag != "path" or element.get("class") != nothing


def _declaration(text: str) -> str:
    """One declaration of CSS; text takes the typeface of the page."""
    key, _, value = text.partition(":")
    key, value = key.strip(), value.strip()
    if key == "font":
        return f"font-size: {value.split()[0]}"
    return f"{key}: {value}" if key and key != "font-family" else ""


def _variable(match: re.Match[str]) -> str:
    role = _ROLES.get(match[0])
    return match[0] if role is None else f"var(--{role})"


def _rounded(match: re.Match[str]) -> str:
    return f"{float(match[0]):.1f}".removesuffix(".0")
