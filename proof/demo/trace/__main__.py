"""`python -m proof.demo.trace`: the trace of a message that crossed a region's death, drawn."""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from cli.cloud import KEY
from cli.running import run_program
from local.testing.cloud import CloudProcess
from local.testing.control import request_json
from proof.testbed.cloud import running_cloud
from proof.testbed.collector import CollectedSpan, Collector, running_collector
from proof.testbed.command import RunFailed, exit_status, make_parser
from proof.testbed.faults import region_down, run_in_background
from proof.testbed.pages import write_picture
from shared.charts import REGION_COLOURS, Chart, paint, write_text

GAME = "alice"
# Spans have digests of sessions: of the game, and of its scoreboard.
SESSIONS = {sha256(name.encode()).hexdigest()[:16]: name for name in (GAME, f"{GAME}/score")}
SCOPE = "lockstep"
# A slow machine sends its spans late; one that sends none of the trace for so long sends no more.
STALLED_SECONDS = 60.0
SLOW_SECONDS = 1.0
SETTINGS = {
    "LOCKSTEP_SECONDARY_DELAY_SECONDS": "3",
    "LOCKSTEP_RECOVERY_LAG_SECONDS": "2",
    "LOCKSTEP_SWEEP_SCHEDULE": "*/2 * * * * *",
    "LOCKSTEP_SPAN_RATIO": "1",
    "OTEL_BSP_SCHEDULE_DELAY": "100",
    "OTEL_METRIC_EXPORT_INTERVAL": "1000",
}
ROW_PIXELS = 17
# What is shorter would not be seen.
BAR_SECONDS_MIN = 0.045

DESCRIPTION = """\
Sends a shot in the east, whose worker commits it and cannot send what follows; kills that region;
lets the west deliver what is owed to it; brings the east back; and draws the spans of the message's
trace, as a collector got them. Exit status: 0 one trace with one effect of each message, 1 it was
not so, 2 the run could not be done, 130 interrupted."""


@dataclass(slots=True)
class TracedRun:
    """The way of one message: when its region was killed and came back, and its trace."""

    trace: str = field(default_factory=lambda: secrets.token_hex(16))
    killed: float = 0.0
    back: float = 0.0
    spans: list[CollectedSpan] = field(default_factory=list)

    @property
    def own(self) -> list[CollectedSpan]:
        """The spans of Lockstep itself, without those of the Azure SDKs."""
        return [span for span in self.spans if span.scope == SCOPE]

    def named(self, name: str, region: str = "") -> list[CollectedSpan]:
        return [s for s in self.own if s.name == name and region in ("", s.region)]

    def complaints(self) -> list[str]:
        """Return what is not as it should be."""
        effects = [str(s.attributes["lockstep.message"]) for s in self.named("effect")]
        # Spans of the dead region may be lost, but what follows from an effect names that effect.
        follows = {span.parent for span in self.named("effect", "west")}
        checks = {
            f"two effects were expected, not {len(effects)}": len(effects) == 2,
            f"a message has two effects: {effects}": len(set(effects)) == len(effects),
            "both regions should be in the trace": {s.region for s in self.own} == {"east", "west"},
            "the west's effect should follow from the east's": (
                follows == {span.id for span in self.named("effect", "east")}
            ),
        }
        return [complaint for complaint, holds in checks.items() if not holds]


def post(cloud: CloudProcess, kind: str, position: int, headers: dict[str, str]) -> None:
    """Send to the game, in the first region."""
    url = f"{cloud.contract['hosts'][cloud.regions[0]]}/api/sessions/{GAME}/messages?type={kind}"
    status, answer = request_json(
        "POST", url, {"position": position}, {"x-functions-key": KEY, **headers}
    )
    if status >= 400:
        raise RunFailed(f"a message was not accepted: {status} {answer}")


def cross(cloud: CloudProcess, collector: Collector) -> TracedRun:
    """Send one message through the death of its region; raises RunFailed."""
    run, (east, west) = TracedRun(), cloud.regions
    post(cloud, "range.move", 5, {"Idempotency-Key": "move"})
    # While the entry is written, there is time to break the sends of what follows from it.
    slow = cloud.control.arm(
        {"component": "cosmos", "operation": "batch", "action": "delay", "seconds": SLOW_SECONDS}
    )
    traceparent = f"00-{run.trace}-{secrets.token_hex(8)}-01"
    headers = {"Idempotency-Key": "fire", "traceparent": traceparent}
    # Nobody waits for its answer, which the region's death may take away.
    run_in_background(lambda: post(cloud, "range.fire", 5, headers))

    def seen(name: str, region: str, count: int = 1) -> None:
        def is_there() -> bool:
            run.spans = collector.trace(run.trace)
            return len(run.named(name, region)) >= count

        known = -1
        while not collector.wait(is_there, STALLED_SECONDS):
            if len(run.spans) == known:
                found = [(span.name, span.region) for span in run.own]
                raise RunFailed(f"no span {name!r} was sent of {region}, only {found}")
            known = len(run.spans)

    seen(f"send {cloud.queue}", east, 2)
    broken = cloud.control.arm(
        {"component": "servicebus", "operation": "send", "action": "drop-connection"}
    )
    seen("effect", east)
    run.killed = time.time()
    # The journal's writes move at once: how long they wait is nothing of this message's.
    with region_down(cloud.control, east, away=west, wait=lambda: None):
        cloud.control.clear(broken)
        cloud.control.clear(slow)
        # The shot is a copy there, and the scoreboard is told by the west's sweep.
        seen("effect", west)
        time.sleep(1.0)
        run.back = time.time()
    # Back, the east finds its copies done; what it missed it delivers to itself.
    seen("receive", east, 2)
    time.sleep(2.0)
    run.spans = collector.trace(run.trace)
    return run


def draw(run: TracedRun) -> str:
    """Draw the spans as bars, one below the other, coloured by region."""
    spans = run.own
    begin = min(span.begin for span in spans)
    end = max(span.end for span in spans) - begin
    colours = dict(zip(("east", "west"), REGION_COLOURS, strict=False))
    title = "The spans of one message that crossed a region's death"
    chart = Chart(title, -0.1, end * 1.02, "time since it was posted (s)")
    # A row for each span, below one for what happened.
    rows = len(spans) + 1
    others = f"{title} (and {len(run.spans) - len(spans)} requests of the Azure SDKs)"
    panel = chart.add_panel(others, ROW_PIXELS * rows, 0)
    panel.has_grid = False
    panel.names = colours | ({"failed": "bad"} if any(s.is_error for s in spans) else {})
    for at, what in ((run.killed, "east is killed"), (run.back, "east is started again")):
        panel.mark_time(at - begin, what, "removed")
    for row, span in enumerate(spans, start=1):
        start, seconds = span.begin - begin, max(span.end - span.begin, BAR_SECONDS_MIN)
        left, right = chart.place(start), chart.place(start + seconds)
        top = panel.y + ROW_PIXELS * row
        colour = "bad" if span.is_error else colours[span.region]
        box = f'x="{left:.2f}" y="{top + 2:.2f}" width="{right - left:.2f}"'
        panel.shapes.append(f'<rect {box} height="{ROW_PIXELS - 4}" fill="{paint(colour)}"/>')
        place, side = (left - 5, "end") if start > end * 0.7 else (right + 5, "start")
        panel.shapes.append(write_text(place, top + 12, label_span(span), colour="text", side=side))
    return write_picture(chart.write())


def label_span(span: CollectedSpan) -> str:
    """Return what a span is about, in a few words."""
    said = {name.removeprefix("lockstep."): v for name, v in span.attributes.items()}
    session = str(said.get("session", ""))
    words = [span.name, SESSIONS.get(session, session)]
    if "to" in said:
        words.append(f"in {said['to']}")
    if "outcome" in said:
        words.append(f"({said['outcome']})")
    return " ".join(word for word in words if word)


def run_and_draw(out: Path) -> int:
    with (
        running_collector() as collector,
        running_cloud(settings={**SETTINGS, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}) as cloud,
    ):
        run = cross(cloud, collector)
    out.write_text(draw(run), encoding="utf-8")
    complaints = run.complaints()
    print(f"{len(run.spans)} spans of trace {run.trace}, {len(run.own)} of Lockstep: {out}")
    for complaint in complaints:
        print(f"NOT AS IT SHOULD BE: {complaint}")
    return 1 if complaints else 0


def main(words: Sequence[str]) -> int:
    parser = make_parser("proof.demo.trace", DESCRIPTION)
    parser.add_argument(
        "--out", type=Path, default=Path("docs/trace.svg"), metavar="FILE", help="docs/trace.svg"
    )
    asked = parser.parse_args(words)
    return exit_status("python -m proof.demo.trace", lambda: run_and_draw(asked.out))


if __name__ == "__main__":
    run_program(main)
