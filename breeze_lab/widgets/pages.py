"""Which pages show the widget. A job that no page is left to hear is stopped."""

TICK_S = 5.0


class Pages:
    """While a job runs, each page says now and then how long it may be silent from then on (board.js).

    Until one has spoken nobody is missed: what a script or a notebook without a page starts is left alone.
    """

    def __init__(self) -> None:
        self._until: dict[str, float] = {}  # by page, on the clock of `now`
        self._looked = float("inf")

    def begin(self) -> None:
        """A job begins; the pages of the one before it may be gone."""
        self._until = {}

    def hear(self, page: str, seconds: float, now: float) -> None:
        self._until[page] = now + seconds

    def gone(self, now: float) -> bool:
        """Whether all are silent for too long. To be asked every `TICK_S` on the thread that hears them: when it asks
        late (a cell kept it busy), words may lie there unheard, and the pages are given that time.
        """
        late, self._looked = now - self._looked - TICK_S, now
        if late > TICK_S:
            self._until = {page: until + late for page, until in self._until.items()}
        return bool(self._until) and max(self._until.values()) < now
