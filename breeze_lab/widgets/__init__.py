"""The voice-cloning widget: `studio()` shows it, `CloneSession` is what it does, without the widgets."""

from typing import Any

from .session import CloneSession
from .takes import Request, Take

__all__ = ["CloneSession", "Request", "Take", "studio"]


def studio(session: CloneSession | None = None, **options: Any) -> Any:
    """The widget of a session (a new one by default; `options` go to `CloneSession`). Needs the extra `lab`."""
    from ..errors import BreezeLabError

    try:
        from .view import Studio
    except ImportError as error:
        raise BreezeLabError(
            f"The widget needs {error.name or 'ipywidgets and anywidget'}. In the clone, run: "
            'python -m pip install -e ".[lab]"'
        ) from error
    return Studio(session if session is not None else CloneSession(**options)).widget
