"""ipywidgets in the studio's manner: the label above its control, one look."""

from typing import Any

import ipywidgets as w


def field(kind: Any, description: str, value: Any = None, grow: str = "1 1 130px", **options: Any) -> Any:
    """A control with its label above; `grow` is its flex."""
    if value is not None:
        options["value"] = value
    control = kind(description=description, layout=w.Layout(width="auto", flex=grow), **options)
    control.style.description_width = "auto"
    control.add_class("bl-field")
    return control


def button(text: str, hint: str = "", style: str = "") -> w.Button:
    made = w.Button(description=text, tooltip=hint)
    if style:
        made.add_class(style)
    return made


def line(*children: w.Widget) -> w.HBox:
    """Controls in a row that wraps."""
    box = w.HBox(children)
    box.add_class("bl-line")
    return box


def panel(*children: w.Widget) -> w.VBox:
    box = w.VBox(children)
    box.add_class("bl-panel")
    return box


def section(title: str, *children: w.Widget, wide: bool = False) -> w.VBox:
    box = w.VBox([w.HTML(f"<h3>{title}</h3>"), *children])
    box.add_class("bl-section")
    if wide:
        box.add_class("bl-wide")
    return box


def fold(title: str, *children: w.Widget) -> w.Accordion:
    """Folded away at first."""
    box = w.Accordion([panel(*children)], titles=(title,), selected_index=None)
    box.add_class("bl-fold")
    return box


def show(widget: Any, visible: bool) -> None:
    widget.layout.display = None if visible else "none"
