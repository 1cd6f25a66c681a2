"""Microsoft's compiler of Bicep: what it says of the files, and the snapshots that it makes.

`python -m tests.infra.compiler` writes the snapshots anew, and prints what the compiler says. One
process answers every question, because its start costs more than most answers.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from typing import Any

from tests.infra.snapshots import FOLDER, INFRA

# `az bicep install` puts it where no PATH looks.
PLACES = os.pathsep.join([os.environ["PATH"], str(Path.home() / ".azure" / "bin")])
COMPILER = os.environ.get("BICEP") or shutil.which("bicep", path=PLACES)
FILES = sorted([*INFRA.glob("*.bicep"), *INFRA.rglob("*.bicepparam")])
PARAMETERS = sorted(FOLDER.glob("*.bicepparam"))
# Names that follow from the subscription are made of these.
WHERE = {
    "subscriptionId": "00000000-0000-0000-0000-000000000000",
    "location": "eastus2",
    "deploymentName": "lockstep",
}
# Parameters that cannot be deployed, each with what is said of it before anything is created.
REFUSED = {
    "param primary = 'north'": "primary is no region: north",
    "param authentication = 'entra'": "clientId is needed for tokens",
    "param privateNetwork = true": "privateNetwork needs the serviceBusSku Premium",
    "param frontDoor = true": "frontDoor needs directCallers",
    # `emails` is `none` there.
    "param monthlyBudget = 5": "monthlyBudget needs an address in emails",
}
# A file that breaks the rules of the linter.
BROKEN = """param name string
param tags object
resource bus 'Microsoft.ServiceBus/namespaces@2026-01-01' = {
  name: name
  location: 'eastus2'
  tags: tags
  properties: { disableLocalAuht: true }
}
output key string = listKeys(bus.id, '2026-01-01').primaryKey
output url string = 'https://management.azure.com'
"""
REQUIRED = "param environmentName = 'trial'\nparam location = 'eastus2'\nparam emails = 'none'"
# What azd sets where nobody has named an address.
AZD = {"AZURE_ENV_NAME": "trial", "AZURE_LOCATION": "eastus2", "LOCKSTEP_EMAILS": ""}
HANGS_AFTER_SECONDS = 1200.0


@dataclass(frozen=True, slots=True)
class Compiled:
    """What the compiler says of the files and of their format, and what it makes of them."""

    said: list[str]
    snapshots: dict[str, Any]
    # By the line that is refused, what is said of it.
    refused: dict[str, str]
    # The codes of what is said of a file that is broken.
    broken: set[str]
    # What azd shows where nobody has named an address.
    unaddressed: str


def ask(questions: Sequence[tuple[str, Path]]) -> list[Any]:
    """The compiler's answers to questions about files, in their order; an error is its message."""
    asked = b""
    for number, (method, path) in enumerate(questions):
        parameters = {"path": str(path), "metadata": WHERE, "parameterOverrides": {}}
        call = {"id": number, "method": f"bicep/{method}", "params": parameters}
        text = json.dumps({"jsonrpc": "2.0", **call}).encode()
        asked += b"Content-Length: %d\r\n\r\n%s" % (len(text), text)
    answers: dict[int, Any] = {}
    with subprocess.Popen(
        [str(COMPILER), "jsonrpc", "--stdio"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **AZD},
    ) as process:
        assert process.stdin
        assert process.stdout
        limit = Timer(HANGS_AFTER_SECONDS, process.kill)
        limit.start()
        try:
            process.stdin.write(asked)
            process.stdin.flush()
            while len(answers) < len(questions):
                length = 0
                while header := process.stdout.readline().strip():
                    if header.startswith(b"Content-Length"):
                        length = int(header.partition(b":")[2])
                assert length, "the compiler has ended"
                answer = json.loads(process.stdout.read(length))
                answers[answer["id"]] = answer.get("result") or answer["error"]["message"]
        finally:
            limit.cancel()
            process.stdin.close()
    return [answer for _, answer in sorted(answers.items())]


@cache
def compile_everything() -> Compiled:
    with TemporaryDirectory() as folder:
        main = os.path.relpath(INFRA / "main.bicep", folder)
        broken = Path(folder) / "broken.bicep"
        broken.write_text(BROKEN, encoding="utf-8")
        shutil.copy(INFRA / "bicepconfig.json", folder)
        wrong = [Path(folder) / f"{number}.bicepparam" for number in range(len(REFUSED))]
        for path, line in zip(wrong, REFUSED, strict=True):
            path.write_text(f"using '{main}'\n{REQUIRED}\n{line}\n".replace(os.sep, "/"), "utf-8")
        compiled, linted, unaddressed, *others = ask(
            [
                ("compile", INFRA / "main.bicep"),
                ("compile", broken),
                ("compileParams", INFRA / "main.bicepparam"),
                *(("format", path) for path in FILES),
                *(("getSnapshot", path) for path in (*PARAMETERS, *wrong)),
            ]
        )
    formatted, made = others[: len(FILES)], others[len(FILES) : -len(REFUSED)]
    said = [f"{one['source']}: {one['code']}: {one['message']}" for one in compiled["diagnostics"]]
    for path, found in zip(FILES, formatted, strict=True):
        if found["contents"] != path.read_text(encoding="utf-8"):
            said.append(f"{path.name}: run `bicep format`")
    snapshots = {}
    for path, found in zip(PARAMETERS, made, strict=True):
        if isinstance(found, str):
            said.append(f"{path.name}: {found}")
            continue
        snapshots[path.stem] = json.loads(found["snapshot"])
        said += [f"{path.name}: {one}" for one in snapshots[path.stem].pop("diagnostics")]
    refused = dict(zip(REFUSED, map(str, others[-len(REFUSED) :]), strict=True))
    codes = {one["code"] for one in linted["diagnostics"]}
    return Compiled(said, snapshots, refused, codes, json.dumps(unaddressed["diagnostics"]))


if __name__ == "__main__":
    if COMPILER is None:
        sys.exit("There is no Bicep compiler: `az bicep install`, or name it in BICEP.")
    found = compile_everything()
    for name, snapshot in found.snapshots.items():
        # The compiler writes the outputs in another order each time.
        snapshot["outputs"] = dict(sorted(snapshot["outputs"].items()))
        text = json.dumps(snapshot, indent=2, ensure_ascii=False)
        (FOLDER / f"{name}.snapshot.json").write_text(f"{text}\n", encoding="utf-8")
    sys.exit("\n".join(found.said) or 0)
