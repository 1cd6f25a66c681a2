"""One line of JSON on stderr for each log record, of the host and of the app."""

import io
import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TextIO

# The attribute of a worker's records that names the function which ran when they were made.
RUNNING = "local_function"
HOST = logging.getLogger("local.functions_host")


class JsonLines(logging.Formatter):
    def __init__(self, region: str) -> None:
        super().__init__()
        self._region = region

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        if record.exc_info:
            message = f"{message}\n{self.formatException(record.exc_info)}"
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "region": self._region,
            "function": function_of(record),
            "message": message,
        }
        return json.dumps(line, ensure_ascii=False)


class FunctionLevels(logging.Filter):
    """Drops records of a function below the level its category has in host.json."""

    def __init__(self, levels: Mapping[str, int]) -> None:
        super().__init__()
        self._levels = levels

    def filter(self, record: logging.LogRecord) -> bool:
        function = function_of(record)
        if not function:
            return True
        every = self._levels.get("Function", logging.NOTSET)
        return record.levelno >= self._levels.get(f"Function.{function}", every)


class PrintedLines(io.TextIOBase):
    """Stands in for stdout while app code runs: each printed line becomes a record."""

    def __init__(self) -> None:
        self._rest = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            logging.getLogger("stdout").info("%s", line)
        return len(text)


def function_of(record: logging.LogRecord) -> str:
    """The function a record is about: named by the record, or running where it was made."""
    return str(getattr(record, "function", "") or getattr(record, RUNNING, ""))


def configure(region: str, level: int, levels: Mapping[str, int], stream: TextIO) -> None:
    """Send every record to `stream`; `level` is the floor where host.json names none.

    The worker library and the Azure SDKs log every call at level information; they are held at
    warning unless debugging is asked for.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines(region))
    handler.addFilter(FunctionLevels(levels))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(level, levels.get("default", level)) if level > logging.DEBUG else level)
    HOST.setLevel(levels.get("Host", logging.NOTSET))
    if level > logging.DEBUG:
        logging.getLogger("azure").setLevel(logging.WARNING)
    sys.stdout = PrintedLines()
