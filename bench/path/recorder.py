"""Record which of our functions run, and how deep they are nested, while a block of code runs.

`sys.monitoring` (PEP 669) reports the start of every function once: a coroutine starts once,
however often it is resumed, so a message is counted alike however long its awaits take.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).resolve().parents[2]
MONITORING = sys.monitoring
TOOL = MONITORING.PROFILER_ID
# A comprehension or a lambda is read with the function it stands in.
ANONYMOUS = ("<genexpr>", "<lambda>", "<module>")


@dataclass(slots=True)
class RecordedPath:
    """The functions that ran, in order, as (file, name); `depth` is the deepest nesting."""

    calls: list[tuple[str, str]] = field(default_factory=list)
    depth: int = 0

    @property
    def functions(self) -> int:
        return len(set(self.calls))

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(file for file, _ in self.calls))

    @property
    def changes(self) -> int:
        """How often the next function that ran stood in another file."""
        files = [file for file, _ in self.calls]
        return sum(one != other for one, other in pairwise(files))


@contextmanager
def recording(folders: Sequence[str]) -> Iterator[RecordedPath]:
    """Record the functions that stand in these folders of the repository, in every thread."""
    places = tuple(f"{ROOT}/{folder}/" for folder in folders)
    path = RecordedPath()

    def note_start(code: CodeType, _: int) -> object:
        if not code.co_filename.startswith(places) or code.co_name in ANONYMOUS:
            return MONITORING.DISABLE
        file = str(Path(code.co_filename).relative_to(ROOT))
        path.calls.append((file, code.co_qualname))
        caller = sys._getframe(1)  # the frame that starts; there is no public way to it from here
        path.depth = max(path.depth, measure_depth(caller, places))
        return None

    MONITORING.use_tool_id(TOOL, "bench.path")
    MONITORING.register_callback(TOOL, MONITORING.events.PY_START, note_start)
    MONITORING.set_events(TOOL, MONITORING.events.PY_START)
    try:
        yield path
    finally:
        MONITORING.set_events(TOOL, 0)
        MONITORING.register_callback(TOOL, MONITORING.events.PY_START, None)
        MONITORING.free_tool_id(TOOL)
        MONITORING.restart_events()


def measure_depth(frame: FrameType | None, places: tuple[str, ...]) -> int:
    depth = 0
    while frame is not None:
        code = frame.f_code
        depth += code.co_filename.startswith(places) and code.co_name not in ANONYMOUS
        frame = frame.f_back
    return depth
