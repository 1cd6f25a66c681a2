"""`python -m local serve`: the local cloud as one process, until SIGINT or SIGTERM.

`python -m local settings REGION` prints what the app needs of it under `func start`.
"""

import argparse
import fcntl
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import NoReturn

from local.cloud import Cloud, CloudOptions
from local.config import InvalidLocalConfig, load_config
from local.cosmos.responses import RequestRefused
from local.hosts import HostFailed
from local.loopback import HOST

USAGE_ERROR = 2
HOST_ERROR = 1
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Each namespace and the account has a thread of its own, and Python lets one of them run at a time.
# A thread that has bytes to read waits for its turn at most this long, a fifth of Python's default.
SWITCH_SECONDS = 0.001
DESCRIPTION = """\
Runs Azure on this machine: the Service Bus namespaces, the Cosmos DB account and one Functions host
per region of a local.config.json, and an HTTP endpoint to count and to break things.

When all of it is ready, one line of JSON on stdout tells connection strings and addresses. It runs
until SIGINT or SIGTERM and leaves nothing behind but --data and --logs.
"""
SETTINGS_DESCRIPTION = """\
Prints a local.settings.json with which the real Functions host (`func start`) runs the app of a
region against a cloud that `python -m local serve --no-hosts --port-base N` serves. Its storage is
Azurite's. Nothing is started.
"""
EPILOG = """\
ports with --port-base N:
  N      control: /counters /faults /cosmos /hosts /health
  N+1    Cosmos DB
  N+2... one per namespace, then one per host, then one per Durable task hub of a host's region,
         all in the order of the config, then one per region of Cosmos DB, if there are several

exit status: 0 stopped by a signal, 1 a host did not start, 2 a bad option, config or taken port
"""


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    """Read the command line; argparse ends the process on a bad one."""
    parser = argparse.ArgumentParser(prog="python -m local", description="Azure on one machine.")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser(
        "serve",
        help="run the local cloud until SIGINT or SIGTERM",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    serve.add_argument(
        "--data", type=Path, metavar="DIR", help="keep everything here over restarts"
    )
    serve.add_argument("--port-base", type=port_base, metavar="N", help="fixed ports (see below)")
    serve.add_argument(
        "--bus-host",
        type=address,
        metavar="ADDRESS",
        default=HOST,
        help="where the namespaces listen (default: %(default)s, this machine only)",
    )
    serve.add_argument("--no-hosts", action="store_true", help="start no Functions hosts")
    add_shared_options(serve)
    serve.add_argument(
        "--logs", type=Path, metavar="DIR", help="host logs (default: DATA/logs, or temporary)"
    )
    serve.add_argument(
        "--until-stdin-ends",
        action="store_true",
        help="stop as well when standard input ends, that is when whoever holds it open dies",
    )
    settings = commands.add_parser(
        "settings",
        help="print a local.settings.json for `func start`",
        description=SETTINGS_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    settings.add_argument("region", metavar="REGION", help="one of Hosts.Regions in the config")
    settings.add_argument(
        "--port-base", type=port_base, metavar="N", required=True, help="as given to serve"
    )
    add_shared_options(settings)
    return parser.parse_args(words)


def add_shared_options(parser: argparse.ArgumentParser) -> None:
    """Add the options from which both commands read the cloud and the app's settings."""
    parser.add_argument(
        "--app",
        type=Path,
        metavar="DIR",
        default=Path(),
        help="the Functions app: where function_app.py is (default: here)",
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="what to run (default: local.config.json in the app's directory)",
    )
    parser.add_argument(
        "--setting",
        type=setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an app setting for every host, above the config's (repeatable)",
    )


def port_base(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 65000:
        raise argparse.ArgumentTypeError("must be a number from 1 to 65000")
    return int(text)


def address(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def print_settings(arguments: argparse.Namespace) -> None:
    """Print a local.settings.json; raises InvalidLocalConfig."""
    config = load_config(arguments.config or arguments.app / "local.config.json")
    options = CloudOptions(
        logs=Path(), port_base=arguments.port_base, settings=dict(arguments.setting)
    )
    region = "".join(filter(str.isalnum, arguments.region.lower()))
    values = {
        "FUNCTIONS_WORKER_RUNTIME": "python",
        "AzureWebJobsStorage": "UseDevelopmentStorage=true",
        # Hosts of one storage account take each other for instances of one app, unless told.
        "AzureFunctionsWebHost__hostid": f"local{region}",
        "AzureFunctionsJobHost__extensions__durableTask__hubName": f"local{region}",
        **Cloud(config, options).settings_of(arguments.region),
    }
    print(json.dumps({"IsEncrypted": False, "Values": values}, indent=2))


class DataInUse(RuntimeError):
    """Another process serves from the directory."""


class StopRequested(BaseException):
    """A signal asks for the end, wherever the main thread is; not an error."""


def interrupt(*_: object) -> None:
    """Raise StopRequested, once: what stops already is not to be interrupted again."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise StopRequested


def serve(arguments: argparse.Namespace) -> NoReturn:
    """Run until a signal, then raise StopRequested; or raise what keeps the cloud from starting."""
    for number in STOP_SIGNALS:
        signal.signal(number, interrupt)
    if arguments.until_stdin_ends:
        threading.Thread(target=stop_at_end_of_stdin, daemon=True).start()
    config = load_config(arguments.config or arguments.app / "local.config.json")
    sys.setswitchinterval(SWITCH_SECONDS)
    with lock_directory(arguments.data), log_directory(arguments) as logs:
        options = CloudOptions(
            logs=logs,
            app=None if arguments.no_hosts else arguments.app.resolve(),
            data=arguments.data,
            port_base=arguments.port_base,
            bus_host=arguments.bus_host,
            settings=dict(arguments.setting),
        )
        with Cloud(config, options) as cloud:
            print(json.dumps(cloud.describe()), flush=True)
            while True:
                # Not pause(): a signal that comes just before it would be waited out for ever.
                time.sleep(1)


def stop_at_end_of_stdin() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def lock_directory(directory: Path | None) -> Iterator[None]:
    """Create and hold the directory, if one is given; raises DataInUse. A dead holder frees it."""
    if directory is None:
        yield
        return
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DataInUse(f"{directory} is in use by another process") from error
        yield


@contextmanager
def log_directory(arguments: argparse.Namespace) -> Iterator[Path]:
    """Yield where host logs go; a temporary directory is removed at the end."""
    if arguments.logs or arguments.data:
        yield arguments.logs or arguments.data / "logs"
        return
    with tempfile.TemporaryDirectory(prefix="tworegions-logs-") as name:
        yield Path(name)


def main(words: Sequence[str] | None = None) -> int:
    arguments = parse_arguments(sys.argv[1:] if words is None else words)
    try:
        if arguments.command == "settings":
            print_settings(arguments)
            return 0
        serve(arguments)
    except StopRequested:
        return 0
    except (HostFailed, InvalidLocalConfig, RequestRefused, DataInUse, OSError) as error:
        print(f"python -m local: {error}", file=sys.stderr)
        return HOST_ERROR if isinstance(error, HostFailed) else USAGE_ERROR


if __name__ == "__main__":
    sys.exit(main())
