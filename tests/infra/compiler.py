"""Microsoft's compiler of Bicep, and what it made: the snapshots, and the files that it took.

`python -m tests.infra.compiler` asks it and writes them; they stand for it where there is none. It
checks names, parameters, scopes, and every resource against Azure's published types.
"""

import os
import shutil
import sys
from hashlib import sha256
from pathlib import Path

from local.testing.patience import run_patiently
from tests.infra.bicep import INFRA
from tests.infra.snapshots import SNAPSHOTS

RECORD = Path(__file__).with_name("compiled.txt")
# `az bicep install` puts it where no PATH looks.
PLACES = os.pathsep.join([os.environ["PATH"], str(Path.home() / ".azure" / "bin")])
COMPILER = os.environ.get("BICEP") or shutil.which("bicep", path=PLACES)
# Names that follow from the subscription are made of these.
WHERE = ["--subscription-id", "00000000-0000-0000-0000-000000000000", "--location", "eastus2"]


def compile_everything() -> str:
    """What the compiler says of main.bicep and the modules in it: errors and warnings."""
    if COMPILER is None:
        return "there is no Bicep compiler: `az bicep install`"
    command = [COMPILER, "build", str(INFRA / "main.bicep"), "--stdout", "--no-restore"]
    return run_patiently(command, seconds=60).stderr


def make_snapshots() -> None:
    """Write anew what each .bicepparam file beside the snapshots creates."""
    for parameters in sorted(SNAPSHOTS.glob("*.bicepparam")):
        command = [str(COMPILER), "snapshot", str(parameters), "--mode", "overwrite", *WHERE]
        run_patiently([*command, "--deployment-name", "lockstep"], seconds=120)


def hashes() -> str:
    """The files as they are, one to a line, as `sha256sum` writes them."""
    files = sorted(INFRA.glob("*.bicep"))
    return "".join(f"{sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)


if __name__ == "__main__":
    said = compile_everything()
    if not said:
        RECORD.write_text(hashes(), encoding="utf-8")
        make_snapshots()
    sys.exit(said or 0)
