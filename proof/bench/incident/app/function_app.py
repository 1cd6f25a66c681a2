"""The product's app, and a handler whose outputs are for a queue that nobody has made."""

import os

from pydantic import BaseModel

from lockstep import (
    Context,
    Handled,
    Output,
    Settings,
    build_app,
    connect,
    find_handlers,
)

settings = Settings.read(os.environ)
handlers = find_handlers("functions.handlers", settings)


class ReportLine(BaseModel):
    """A line of a report."""

    text: str


class LineCount(BaseModel):
    """The number of lines of a report."""

    lines: int = 0


@handlers.register("report.write", state=LineCount, body=ReportLine)
def write_line(report: LineCount, line: ReportLine, context: Context) -> Handled[LineCount]:
    """Pass a line on to where reports are read."""
    passed = Output("report.line", line, context.message.session, to="nowhere")
    return Handled(LineCount(lines=report.lines + 1), (passed,))


app = build_app(connect(settings, handlers))
