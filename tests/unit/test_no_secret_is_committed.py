"""No committed file holds a secret, but for what is known to look like one."""

import subprocess
from collections import Counter
from pathlib import Path

from detect_secrets.core.secrets_collection import SecretsCollection
from detect_secrets.settings import default_settings

from tests.docs.pages import ROOT
from tests.sizes import IS_PROOF

# By file, how many strings look like secrets and are none: published keys of emulators, the name of
# a setting, and made up values of tests.
KNOWN = {
    "emulator/local/cosmos/server.py": 1,
    "emulator/local/functions_host/config/settings.py": 1,
    "tests/infra/test_bicep_files.py": 1,
    "tests/unit/shared/test_settings.py": 1,
    "emulator/tests/wire/strangers/celery_worker.py": 1,
}
# Made by a tool, and of hashes alone.
LOCK = "infra/requirements.lock"
COMMITS = 20
# Tests are full of digests and ids, which are as random as keys.
RANDOM = {"Hex High Entropy String", "Base64 High Entropy String"}


def find_secrets(root: Path, names: list[str]) -> Counter[str]:
    """How many strings of each file look like secrets."""
    found = SecretsCollection(root=str(root))
    with default_settings():
        found.scan_files(*names, num_processors=2)
    tests = ("tests/", "emulator/tests/")
    return Counter(
        name for name, one in found if not (name.startswith(tests) and one.type in RANDOM)
    )


def list_files(*words: str) -> set[str]:
    """The files of the checkout that a command of git names."""
    command = ["git", *words]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    names = (name.strip() for name in listed.stdout.split("\0"))
    return {name for name in names if name and (ROOT / name).is_file()}


def test_what_looks_like_a_secret_is_known_to_be_none() -> None:
    """Of all files in a proof, and of those that changed lately at every change."""
    names = list_files("ls-files", "-z")
    if not IS_PROOF:
        committed = list_files("log", f"-{COMMITS}", "--name-only", "--format=", "-z")
        names &= committed | list_files("diff", "HEAD", "--name-only", "-z")
    names -= {LOCK}

    assert find_secrets(ROOT, sorted(names)) == {
        name: count for name, count in KNOWN.items() if name in names
    }


def test_a_planted_key_is_found(tmp_path: Path) -> None:
    key = "DefaultEndpointsProtocol=https;AccountName=x;AccountKey=" + "Zm9vYmFyYmF6" * 7 + "Zg=="
    (tmp_path / "settings.py").write_text(f'STORAGE = "{key}"\n')
    (tmp_path / "plain.py").write_text('STORAGE = "an address"\n')

    assert find_secrets(tmp_path, ["settings.py", "plain.py"]) == {"settings.py": 1}
