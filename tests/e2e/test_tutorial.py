"""docs/tutorial.md: every block, in its order, on the local cloud; and a stranger's first app."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from local.testing.patience import run_patiently, until
from proof.bench.first_app import FirstApp, find_environment
from tests.docs.pages import page
from tests.e2e.test_what_up_prints import running_up
from tests.programs import find_program

pytestmark = pytest.mark.e2e

PAGE = page("docs/tutorial.md")
# What only looks is run again until it shows what the page says; nothing else is.
READ_ENV = ". .up/env"
LOOKS = ("lockstep show", "lockstep faults", "lockstep health")
EFFECT_SECONDS_MAX = 60.0


@dataclass
class Reader:
    """Somebody who does what the page says, in a first terminal and, for `up`, a second one."""

    folder: Path
    environment: dict[str, str]
    running: ExitStack
    first_effect: float | None = None
    done: list[str] = field(default_factory=list)

    def run(self, commands: str) -> str:
        """What the first terminal shows; a block that fails fails the test."""
        ran = run_patiently(
            ["/bin/bash", "-ec", commands], seconds=120, cwd=self.folder, env=self.environment
        )
        assert ran.returncode == 0, f"{commands}{ran.stdout}{ran.stderr}"
        return ran.stdout

    def do_shell(self, commands: str, expected: str | None) -> None:
        """Run a block, and see what the page says that it shows."""
        lines = commands.splitlines()
        looks = [line for line in lines if line.startswith(LOOKS)]
        acts = [line for line in lines if not line.startswith(LOOKS)]
        assert lines == acts + looks, "a block looks after it has acted"
        shown = self.run("\n".join(acts)) if acts else ""
        if READ_ENV in acts:
            program = f"set -a\n{READ_ENV}\nenv -0"
            pairs = [line.partition("=") for line in self.run(program).split("\0") if line]
            self.environment |= {name: value for name, _, value in pairs}
        if "cd bank" in acts:
            self.folder /= "bank"
        if not looks:
            assert all(line in shown for line in (expected or "").splitlines()), shown
            return

        def is_shown() -> bool:
            seen = self.run("\n".join(looks))
            return all(line in seen for line in (expected or "").splitlines())

        until(is_shown, seconds=EFFECT_SECONDS_MAX, what=f"{expected} after {commands}")

    def do_second(self, commands: str) -> None:
        """Run `up` in a terminal of its own."""
        up = running_up(["/bin/bash", "-c", f"exec {commands}"], self.folder, self.environment)
        self.running.enter_context(up)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    (tmp_path / "bin").mkdir()
    with ExitStack() as running:
        yield Reader(tmp_path, find_environment(tmp_path / "bin"), running)


@pytest.mark.proof
def test_every_block_of_the_tutorial_works_in_its_order(
    reader: Reader,
    record_property: Callable[[str, object], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    find_program("curl")
    began = time.monotonic()
    blocks = PAGE.blocks
    assert "```" not in PAGE.without_blocks
    for place, block in enumerate(blocks):
        text, following = block.text, blocks[place + 1 : place + 2]
        expected = next((one.text for one in following if one.language == "text"), None)
        match block.mark, block.language:
            case "file", _:
                file = reader.folder / str(block.name)
                assert file.exists(), "it takes an example's place"
                file.write_text(text)
            case "terminal", "sh":
                reader.do_second(text)
            case None, "sh":
                reader.do_shell(text, expected)
            case None, "text":
                assert blocks[place - 1].language == "sh"
            case other:
                raise AssertionError(f"nobody runs this block: {other}")
        reader.done.append(block.language)
        if reader.first_effect is None and '"balance": 30' in (expected or ""):
            reader.first_effect = time.monotonic() - began

    assert reader.done.count("sh") >= 10
    assert (reader.folder.parent / "dist/handlers/bank.py").exists()
    assert reader.first_effect is not None
    record_property("seconds_to_the_first_effect", round(reader.first_effect, 1))
    with capsys.disabled():
        sys.stdout.write(f"\nfrom nothing to the first effect: {reader.first_effect:.1f} s\n")


def test_a_stranger_comes_from_nothing_to_an_own_handler_by_what_each_step_prints(
    tmp_path: Path,
) -> None:
    (tmp_path / "bin").mkdir()
    one = FirstApp(tmp_path, find_environment(tmp_path / "bin"))

    one.walk()

    blocks = page("README.md").blocks
    (block,) = [block.text for block in blocks if block.text.startswith("lockstep new app")]
    lines = [line.partition("#")[0].strip() for line in block.strip().splitlines()]
    typed = [command.partition(", until")[0] for command, _ in one.commands]
    assert lines == typed[: len(lines)]
    assert typed[len(lines) :] == [
        "lockstep new handler payment",
        "lockstep test",
        *("lockstep send payment-1 payment.add '{\"amount\": 5}'", "lockstep show payment-1"),
    ]
