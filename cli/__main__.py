"""`lockstep`: make an app, run it on this machine, and look after one that runs."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from cli.failures import EXIT_STATUSES, INTERRUPTED, CommandFailed
from cli.folders import ROOT, package_app, run_tests, write_app, write_handler
from cli.up import keep_app_up
from testbed.command import run_program

app = typer.Typer(
    help=__doc__,
    epilog=EXIT_STATUSES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
new = typer.Typer(no_args_is_help=True, help="Write an app, or a part of one, with its own test.")
app.add_typer(new, name="new")

AppFolder = Annotated[
    Path, typer.Option("--app", metavar="DIR", help="where function_app.py is (default: here)")
]


def tell_written(paths: Sequence[Path]) -> None:
    for path in paths:
        typer.echo(f"wrote {path}")


@new.command("app")
def new_app(folder: Annotated[Path, typer.Argument(help="the folder to make")]) -> None:
    """Make a folder with an app: function_app.py, host.json, a handler, its test and a sample."""
    tell_written(write_app(folder))
    typer.echo(f"next: lockstep test {folder}, then lockstep up --app {folder}")


@new.command("handler")
def new_handler(name: str, folder: AppFolder = Path()) -> None:
    """Add a module of handlers and its test to an app; the app finds it."""
    tell_written(write_handler(folder, name))


@new.command("saga")
def new_saga(name: str, folder: AppFolder = Path()) -> None:
    """Add a saga over two sessions, its participants and their test to an app."""
    tell_written(write_handler(folder, name, "saga"))


@app.command("test")
def run_app_tests(
    folder: Annotated[Path, typer.Argument(help="the app's folder")] = Path(),
    arguments: Annotated[list[str] | None, typer.Argument(help="more words for pytest")] = None,
) -> None:
    """Run an app's tests."""
    raise typer.Exit(run_tests(folder, arguments or []))


@app.command("package")
def package_folder(
    folder: Annotated[Path, typer.Argument(help="the app's folder")] = Path(),
    to: Annotated[Path, typer.Option(help="where to put it")] = Path("dist/app"),
) -> None:
    """Put an app and what it needs of Lockstep into a folder that can be published to Azure."""
    package_app(folder, to)
    typer.echo(f"next: (cd {to} && func azure functionapp publish NAME --python)")


@app.command()
def up(
    folder: Annotated[
        Path | None, typer.Option("--app", metavar="DIR", help="where function_app.py is")
    ] = None,
    data: Annotated[Path, typer.Option(help="keeps queues, journal and logs")] = Path(".up"),
    fresh: Annotated[bool, typer.Option("--fresh", help="delete earlier data first")] = False,
    reload: Annotated[
        bool, typer.Option("--reload", help="start the hosts again when a file changes")
    ] = False,
) -> None:
    """Start Azure on this machine with the app in both regions, and say how to reach it."""
    here = Path() if Path("function_app.py").exists() else ROOT
    keep_app_up(folder or here, data, is_fresh=fresh, reloads=reload)


def main(words: Sequence[str]) -> int:
    """Run a command; returns its exit status. Errors are one line on standard error."""
    try:
        app(args=list(words), prog_name="lockstep")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except CommandFailed as error:
        sys.stderr.write(f"lockstep: {error}\n")
        return error.status
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    run_program(main)
