"""`lockstep`: make an app, run it on this machine, and look after one that runs."""

import shlex
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Never

import typer

from cli.backtest import backtest
from cli.client import AppClient
from cli.decide import (
    VERBS,
    build_verb,
    cancel_decision,
    edit,
    end_session,
    erase_data,
    list_decisions,
    replace_state,
    say_happened,
)
from cli.display import tell
from cli.doctor import doctor, find_lost_destinations
from cli.errors import dismiss_report, print_errors, repeat_delivery
from cli.failures import EXIT_STATUSES, INTERRUPTED, CommandFailed, Misuse
from cli.find import find_by_id
from cli.folders import (
    package_app,
    prebuild_package,
    require_app,
    run_tests,
    show_path,
    write_app,
    write_handler,
)
from cli.look import check_health, list_faults, list_sagas, print_session, print_sessions
from cli.running import find_up, run_program
from cli.sagas import saga
from cli.send import ask_one, publish, send_one, sweep
from cli.watch import tail_sessions, watch_session

app = typer.Typer(
    help=__doc__,
    epilog=" ".join(EXIT_STATUSES.split()),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
new = typer.Typer(no_args_is_help=True, help="Write an app, or a part of one, with its own test.")
# What shows that an app works.
STEPS = ("lockstep test", "lockstep up --reload")
MAKE = "Make an app, test it, run it"
app.add_typer(new, name="new", rich_help_panel=MAKE)
app.add_typer(saga, name="saga", rich_help_panel="Decide")

AppFolder = Annotated[
    Path,
    typer.Option(
        "--app",
        metavar="DIR",
        help="where function_app.py is (default: here, or the nearest folder above)",
        show_default=False,
    ),
]


def tell_written(paths: Sequence[Path], *steps: str) -> None:
    """Say what was written, and the commands that come next."""
    for path in paths:
        typer.echo(f"wrote {show_path(path)}")
    typer.echo("next, `up` in a terminal of its own:")
    for step in steps:
        typer.echo(f"  {step}")


def print_version(is_asked: bool) -> None:
    if is_asked:
        try:
            typer.echo(f"lockstep {version('lockstep')}")
        except PackageNotFoundError:
            typer.echo("lockstep of a checkout that is not installed")
        raise typer.Exit


@app.callback()
def choose_app(
    context: typer.Context,
    url: Annotated[
        str,
        typer.Option(envvar="LOCKSTEP_URL", help="the app in each region, comma separated"),
    ] = "",
    key: Annotated[
        str, typer.Option(envvar="LOCKSTEP_KEY", help="a function key", show_envvar=True)
    ] = "",
    token: Annotated[
        str, typer.Option(envvar="LOCKSTEP_TOKEN", help="a token of Entra ID", show_envvar=True)
    ] = "",
    timeout: Annotated[
        float, typer.Option(envvar="LOCKSTEP_TIMEOUT", min=0.1, help="seconds for an answer")
    ] = 30.0,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=print_version, is_eager=True, help="print the version"),
    ] = False,
) -> None:
    def connect() -> AppClient:
        """Made by the commands that need it: the others ask nobody."""
        # What is said in words or by the environment goes before what runs in this folder.
        up = None if url.strip() else find_up()
        if up is None:
            return AppClient.of(url, key, timeout, tell, token=token)
        return AppClient.of(up["url"], key or up["key"], timeout, tell, token=token)

    context.obj = connect


@new.command("app")
def new_app(folder: Annotated[Path, typer.Argument(help="the folder to make")]) -> None:
    """Make a folder with an app: a handler, its test, a sample, and what a repository needs."""
    written = write_app(folder)
    tell_written(written, f"cd {shlex.quote(show_path(folder))}", *STEPS)


@new.command("handler")
def new_handler(name: str, folder: AppFolder = Path()) -> None:
    """Add a module of handlers and its test to an app; the app finds it."""
    sample = f"lockstep send {name}-1 {name}.add '{{\"amount\": 5}}'"
    tell_written(write_handler(folder, name), *STEPS, sample, f"lockstep show {name}-1")


@new.command("saga")
def new_saga(name: str, folder: AppFolder = Path()) -> None:
    """Add a saga over two sessions, its participants and their test to an app."""
    tell_written(write_handler(folder, name, "saga"), *STEPS)


@app.command("test", rich_help_panel=MAKE)
def run_app_tests(
    folder: Annotated[Path, typer.Argument(help="the app's folder")] = Path(),
    arguments: Annotated[list[str] | None, typer.Argument(help="more words for pytest")] = None,
) -> None:
    """Run an app's tests, and name the queues that are nowhere."""
    for lost in find_lost_destinations(require_app(folder)):
        tell(f"{lost.wrong}: {lost.next}")
    raise typer.Exit(run_tests(folder, arguments or []))


@app.command("package", rich_help_panel=MAKE)
def package_folder(
    folder: Annotated[Path, typer.Argument(help="the app's folder")] = Path(),
    to: Annotated[Path, typer.Option(help="where to put it")] = Path("dist/app"),
    prebuilt: Annotated[
        bool, typer.Option("--prebuilt", help="with all packages, and as a zip: no remote build")
    ] = False,
) -> None:
    """Put an app and what it needs of Lockstep into a folder that can be published to Azure."""
    package_app(folder, to)
    if prebuilt:
        typer.echo(f"wrote {prebuild_package(to)}")
    build = " --no-build" if prebuilt else ""
    typer.echo(f"next: (cd {to} && func azure functionapp publish NAME --python{build})")


@app.command("up", rich_help_panel=MAKE)
def up(
    folder: AppFolder = Path(),
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="keeps queues, journal, logs and ports (default: .up in the app)"
        ),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="delete earlier data first")] = False,
    reload: Annotated[
        bool, typer.Option("--reload", help="start the hosts again when a file changes")
    ] = False,
    add_region: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="a further region beside the two (repeatable)"),
    ] = None,
    port_base: Annotated[
        int | None,
        typer.Option(
            min=1, max=65_000, help="the first of the ports (default: those of the last time)"
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="an app setting of every host (repeatable)"),
    ] = None,
) -> None:
    """Start Azure on this machine with the app in both regions, and say how to reach it."""
    try:
        from cli.up import keep_app_up
    except ModuleNotFoundError as error:
        raise CommandFailed(
            f"Azure on one machine is not installed ({error}): in a checkout of Lockstep,"
            " `pip install ./emulator` brings it"
        ) from error
    pairs = [one.partition("=") for one in setting or ()]
    if wrong := [name for name, equals, _ in pairs if not (name and equals)]:
        raise Misuse(f"--setting {wrong[0]!r} is not NAME=VALUE")
    keep_app_up(
        folder,
        data,
        add_region or [],
        {name: value for name, _, value in pairs},
        port_base=port_base,
        is_fresh=fresh,
        reloads=reload,
    )


# By what they are for, as --help shows them.
COMMANDS: dict[str, dict[str, Callable[..., None]]] = {
    MAKE: {"backtest": backtest},
    "Look": {
        "sessions": print_sessions,
        "show": print_session,
        "find": find_by_id,
        "watch": watch_session,
        "tail": tail_sessions,
        "faults": list_faults,
        "decisions": list_decisions,
        "errors": print_errors,
        "sagas": list_sagas,
        "health": check_health,
        "doctor": doctor,
    },
    "Send": {
        "ask": ask_one,
        "send": send_one,
        "publish": publish,
        "send-again": repeat_delivery,
        "dismiss": dismiss_report,
        "sweep": sweep,
    },
    "Decide": {
        **{action: build_verb(action) for action in VERBS},
        "edit": edit,
        "happened": say_happened,
        "set-state": replace_state,
        "erase": erase_data,
        "end": end_session,
        "cancel": cancel_decision,
    },
}
for panel, commands in COMMANDS.items():
    for name, command in commands.items():
        app.command(name, help=VERBS.get(name), rich_help_panel=panel)(command)


def main(words: Sequence[str]) -> int:
    """Run a command; returns its exit status. Errors are one line on standard error."""
    try:
        app(args=list(words), prog_name="lockstep")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except CommandFailed as error:
        tell(str(error))
        return error.status
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def run() -> Never:
    """Run the command of the shell's words, and end the process with its exit status."""
    run_program(main)


if __name__ == "__main__":
    run()
