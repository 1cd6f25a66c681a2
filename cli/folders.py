"""An app's folder: made from templates, tested, and packaged for a deployment."""

import json
import keyword
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from string import Template
from zipfile import ZIP_DEFLATED, ZipFile

from cli.failures import CommandFailed, Misuse
from cli.regions import find_config

# Where Lockstep is: a checkout, or what pip made of one.
ROOT = Path(__file__).resolve().parents[1]
TEMPLATES = Path(__file__).parent / "templates"
# Files of the root of a checkout, which an installed Lockstep has here alone: links in a checkout.
SHIPPED = Path(__file__).parent / "shipped"
REQUIREMENTS = SHIPPED / "requirements.txt"
# What every app has of Lockstep when it is deployed.
PARTS = (
    *(ROOT / name for name in ("functions", "shared", "lockstep.py")),
    *(REQUIREMENTS, SHIPPED / "LICENSE", SHIPPED / "host.json"),
)
# Where the Functions worker looks for an app's packages, and the machines that they are for: those
# of Flex Consumption, whatever this one is.
PACKAGES = ".python_packages/lib/site-packages"
MACHINES = (
    *("--python-version", "3.13", "--implementation", "cp", "--only-binary", ":all:"),
    *("--platform", "manylinux_2_28_x86_64", "--platform", "manylinux2014_x86_64"),
)
MARKER = ".lockstep-package"
# Run in a package: whether a function of it needs Durable Functions.
ASK_FOR_DURABLE = """
import function_app
from azure.functions import FunctionApp
from functions.app import DURABLE_BINDINGS
apps = [one for one in vars(function_app).values() if isinstance(one, FunctionApp)]
bound = {b.type for app in apps for one in app.get_functions() for b in one.get_bindings()}
print(bool(bound & DURABLE_BINDINGS))
"""
LOAD_SECONDS = 300.0
# The extensions of an app that needs none of these. docs/upgrade.md says how bundles are moved.
STABLE_BUNDLE = {"id": "Microsoft.Azure.Functions.ExtensionBundle", "version": "[4.38.0, 4.38.1)"}
PREVIEW_BUNDLE = f"{STABLE_BUNDLE['id']}.Preview"
# What an app's own folder holds for its makers only.
LEFT_OUT = shutil.ignore_patterns(
    *(".*", "__pycache__", "tests", "pyproject.toml", "sample.json", "local.config.json", "*.md")
)


def require_app(folder: Path) -> Path:
    """The app's folder, absolute; raises Misuse where there is no function_app.py in it.

    Where no folder is named it is this one, or the nearest above it that has an app.
    """
    if folder == Path():
        here = folder.resolve()
        for one in (here, *here.parents):
            if (one / "function_app.py").is_file():
                return one
        raise Misuse(
            "there is no app: no function_app.py is in this folder or in one above it;"
            " `lockstep new app NAME` makes an app, and --app names the folder of another one"
        )
    if not (folder / "function_app.py").is_file():
        raise Misuse(f"{folder} is no app: there is no function_app.py in it")
    return folder.resolve()


def show_path(path: Path) -> str:
    """A path as somebody in this folder would name it: relative, unless it lies elsewhere."""
    whole, here = path.resolve(), Path.cwd()
    return str(whole.relative_to(here)) if whole.is_relative_to(here) else str(whole)


def write_app(folder: Path) -> list[Path]:
    """A new app with one handler, its test and a sample message; raises Misuse."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Misuse(f"{folder} is there already and not empty: nothing was written")
    name = folder.resolve().name
    words = words_of(name)
    written = []
    for template in sorted((TEMPLATES / "app").rglob("*.txt")):
        path = folder / template.relative_to(TEMPLATES / "app").with_suffix("")
        written.append(write_file(path, template, words))
    shutil.copy(SHIPPED / "host.json", folder)
    return [*written, folder / "host.json", *write_handler(folder, name)]


def write_handler(folder: Path, name: str, kind: str = "handler") -> list[Path]:
    """A module of handlers and its test, of a kind of template: `handler` or `saga`.

    Raises Misuse for a name that cannot be one, and where one of the files is there already.
    """
    words = words_of(name)
    app = require_app(folder)
    package = "functions/handlers" if (app / "functions/handlers").is_dir() else "handlers"
    tests = app / ("tests/unit/functions" if package != "handlers" else "tests")
    module, test = app / package / f"{words['module']}.py", tests / f"test_{words['module']}.py"
    for path in (module, test):
        if path.exists():
            raise Misuse(f"{path} is there already: nothing was written")
    words["package"] = package.replace("/", ".")
    return [
        write_file(module, TEMPLATES / f"{kind}.py.txt", words),
        write_file(test, TEMPLATES / f"test_{kind}.py.txt", words),
    ]


def words_of(name: str) -> dict[str, str]:
    """Return the words of a template; raises Misuse for a name that no module can have."""
    module = name.replace("-", "_")
    if not re.fullmatch("[a-z][a-z0-9_]{0,39}", module) or keyword.iskeyword(module):
        raise Misuse(
            f"{name!r} cannot be the name: take small letters, digits and hyphens, a letter first"
        )
    parts = [part for part in module.split("_") if part]
    return {"name": name, "module": module, "Class": "".join(map(str.capitalize, parts))}


def write_file(path: Path, template: Path, words: dict[str, str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(Template(template.read_text("utf-8")).substitute(words), encoding="utf-8")
    return path


def run_tests(folder: Path, arguments: list[str]) -> int:
    """Run an app's tests with pytest; returns its exit status."""
    app = require_app(folder)
    command = [sys.executable, "-m", "pytest", *arguments, "tests"]
    return subprocess.run(command, cwd=app, check=False).returncode  # noqa: S603 - pytest itself


def package_app(folder: Path, to: Path) -> None:
    """Put an app and what it needs of Lockstep into one folder, ready to be published.

    The app's own requirements.txt is added to Lockstep's; its host.json takes the place of
    Lockstep's, and loads nothing of Durable Functions where the app has no sagas. What the target
    held of an earlier package is replaced. Raises Misuse, and CommandFailed for an app that cannot
    be loaded here.
    """
    app = require_app(folder)
    for name in ("functions", "shared"):
        if app != ROOT and (app / name).exists():
            raise Misuse(f"{app / name}: an own app cannot have a folder of this name")
    marker = to / MARKER
    if to.exists() and any(to.iterdir()) and not marker.exists():
        raise Misuse(f"{to} is not empty and holds no package: nothing was written")
    if app == to.resolve() or app.is_relative_to(to.resolve()):
        raise Misuse(f"{to} holds the app itself: nothing was written")
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    marker.touch()
    for part in PARTS:
        if part.is_dir():
            shutil.copytree(part, to / part.name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(part, to)
    if app == ROOT:
        shutil.copy(app / "function_app.py", to)
    else:
        # The examples of Lockstep are not the app's.
        shutil.rmtree(to / "functions/handlers", ignore_errors=True)
        own = app / "requirements.txt"
        lines = REQUIREMENTS.read_text("utf-8")
        shutil.copytree(app, to, ignore=LEFT_OUT, dirs_exist_ok=True)
        if own.exists():
            (to / "requirements.txt").write_text(lines + own.read_text("utf-8"), encoding="utf-8")
    write_host(to / "host.json", needs_durable(to, find_config(app)))


def needs_durable(package: Path, config: Path) -> bool:
    """Ask the package itself, with the settings of a local host and connections to nowhere."""
    try:
        values = json.loads(config.read_text("utf-8"))["Hosts"]["Values"]
        regions = values["LOCKSTEP_REGIONS"].split(",")
    except (ValueError, LookupError, TypeError) as error:
        raise CommandFailed(f"{config} cannot be read: {error!r}") from None
    settings = {name: str(value).replace("{region}", regions[0]) for name, value in values.items()}
    nowhere = {f"ServiceBus_{region}": "Endpoint=sb://localhost/" for region in regions}
    nowhere["Cosmos"] = "AccountEndpoint=http://localhost/;AccountKey=bm90aGluZw==;"
    # -B: what is compiled here is not published.
    command = [sys.executable, "-B", "-c", ASK_FOR_DURABLE]
    vain = "the app cannot be loaded, so nobody knows whether it has sagas"
    try:
        asked = subprocess.run(  # noqa: S603 - the app itself
            command,
            cwd=package,
            env=os.environ | settings | nowhere,
            capture_output=True,
            text=True,
            timeout=LOAD_SECONDS,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise CommandFailed(f"{vain}: {last}") from None
    except subprocess.TimeoutExpired:
        raise CommandFailed(f"{vain}: it was not loaded in {LOAD_SECONDS:g} s") from None
    return asked.stdout.split()[-1] == "True"


def write_host(path: Path, needs: bool) -> None:
    """Take Durable Functions out of a host.json where nothing needs them; raises CommandFailed."""
    try:
        document = json.loads(path.read_text("utf-8"))
        extensions, bundle = document["extensions"], document["extensionBundle"]
        if needs and "durableTask" not in extensions:
            raise CommandFailed(
                "the app has sagas, and its host.json has no extensions.durableTask: copy that"
                f" and extensionBundle from {SHIPPED / 'host.json'}"
            )
        if needs:
            return
        extensions.pop("durableTask", None)
        if bundle["id"] == PREVIEW_BUNDLE:
            document["extensionBundle"] = STABLE_BUNDLE
    except (ValueError, LookupError, TypeError) as error:
        raise CommandFailed(f"the app's host.json cannot be read: {error!r}") from None
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def prebuild_package(package: Path) -> Path:
    """Install what a package requires into it, and make a zip of all, beside it; returns the zip.

    Only wheels are taken, because nothing can be compiled here for Azure's machines; those of
    Lockstep itself are held to the hashes of infra/requirements.lock. Raises CommandFailed.
    """
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", *MACHINES]
    command += ["--target", str(package / PACKAGES)]
    required = package / "requirements.txt"
    if required.read_bytes() == REQUIREMENTS.read_bytes():
        # Of what an app adds of its own nobody knows the hashes.
        command += ["--require-hashes", "-r", str(SHIPPED / "requirements.lock")]
    else:
        command += ["-r", str(required)]
    if subprocess.run(command, check=False).returncode:  # noqa: S603 - pip itself
        raise CommandFailed("pip could not install the packages; its words are above")
    target = package.parent / f"{package.name}.zip"
    with ZipFile(target, "w", ZIP_DEFLATED) as archive:
        for path in sorted(package.rglob("*")):
            if path.is_file() and path.name != MARKER:
                archive.write(path, path.relative_to(package))
    return target
