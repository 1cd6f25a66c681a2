"""`python -m proof.chaos`: what is refused before anything is started, and the plan of a seed."""

import subprocess
import sys
from pathlib import Path

import pytest

from proof.chaos.__main__ import main, parse_arguments, parse_options


def test_three_minutes_are_usual_and_many_messages_have_their_own_usual_values() -> None:
    minutes, messages = (
        parse_options(parse_arguments(words)) for words in ([], ["--messages", "100000"])
    )

    assert (minutes.seconds, minutes.messages, minutes.pause_factor) == (180.0, None, 2.0)
    assert (messages.messages, messages.pause_factor, messages.operation_max) == (100_000, 5.0, 25)
    assert minutes.messages_max == 180 * 40
    assert messages.messages_max == 100_000
    assert messages.rate > minutes.rate
    assert minutes.calls == 16


@pytest.mark.parametrize(
    "words",
    [
        ["--seconds", "0"],
        ["--messages", "-1"],
        ["--messages", "1.5"],
        ["--rate", "fast"],
        ["--calls", "0"],
        ["--nonsense"],
    ],
)
def test_a_bad_option_is_refused_by_name(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        parse_arguments(words)

    assert refused.value.code == 2
    assert words[0] in capsys.readouterr().err


def test_the_plan_of_a_seed_is_printed_in_the_order_of_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--plan", "--seed", "7", "--seconds", "60"]) == 0

    lines = capsys.readouterr().out.splitlines()
    times = [float(line.split()[0]) for line in lines]
    assert times == sorted(times)
    assert len(times) > 10
    assert max(times) < 60


def test_a_directory_that_no_run_made_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "precious").write_text("keep me")

    assert main(["--data", str(tmp_path), "--seconds", "1"]) == 2
    assert "was not made by a run" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_there_must_be_a_run_to_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--data", str(tmp_path), "--judge"]) == 2
    assert "holds no run that came to its end" in capsys.readouterr().err


def test_help_says_what_it_does_and_what_the_exit_status_means() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "proof.chaos", "--help"], capture_output=True, text=True, check=True
    ).stdout

    for word in ("--seconds", "--messages", "--seed", "--plan", "--judge", "exit status"):
        assert word in said
