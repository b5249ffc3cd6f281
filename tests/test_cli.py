"""The command line: help worth reading, and what each command passes on."""

import subprocess
import sys
from pathlib import Path

import pytest

import ptx.demo
from ptx.cli import main
from ptx.version import __version__


def text_of(capsys, *args, code=0):
    """What a command prints before it exits."""
    with pytest.raises(SystemExit) as ended:
        main(list(args))
    assert ended.value.code == code
    printed = capsys.readouterr()
    return " ".join((printed.out + printed.err).replace("│", " ").split())


def test_help_lists_the_commands(capsys):
    text = text_of(capsys, "--help")
    assert "Probabilistic programming for Bayesian transformers" in text
    for command in ("demo", "runs", "show", "verify", "resume", "version"):
        assert command in text


def test_help_of_demo_says_what_it_does_and_what_its_options_mean(capsys):
    text = text_of(capsys, "demo", "--help")
    for words in (
        "vision transformer",
        "--out",
        "--seed",
        "--quick",
        "runs/demo",
        "default: 0",
        "one to two minutes",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("runs", ("killed", "interrupted", "findings", "Where to look")),
        ("show", ("engine, model, sites", "given to `ptx.infer` as `store`")),
        ("verify", ("checksums", "exit code 1")),
        ("resume", ("ptx.resume(path, model)", "as if it had never stopped")),
    ],
)
def test_help_of_the_commands_for_stored_runs(command, words, capsys):
    text = text_of(capsys, command, "--help")
    for word in words:
        assert word in text
    assert "required" in text_of(capsys, command, code=2)


def test_no_command_is_an_error_that_names_them(capsys):
    assert "demo" in text_of(capsys, code=2)


def test_unknown_option_is_an_error(capsys):
    assert "--quik" in text_of(capsys, "demo", "--quik", code=2)


def test_version(capsys):
    main(["version"])
    assert f"ptx {__version__}" in capsys.readouterr().out.splitlines()


@pytest.fixture
def calls(monkeypatch):
    """The demo replaced by a record of how it was called; the environment is put back afterwards."""
    found = []
    monkeypatch.setattr(ptx.demo, "demo", lambda out, **settings: found.append((out, settings)))
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=true")
    return found


def test_demo_passes_its_options_on(calls):
    main(["demo"])
    main(["demo", "--out", "elsewhere", "--seed", "7", "--quick"])
    assert calls == [
        (Path("runs/demo"), {"seed": 0, "quick": False}),
        (Path("elsewhere"), {"seed": 7, "quick": True}),
    ]


def test_flags_of_the_user_win(calls, monkeypatch):
    import os

    main(["demo"])
    assert os.environ["XLA_FLAGS"].split()[-1] == "--xla_cpu_multi_thread_eigen=true"


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ValueError("not so"), 2, "ptx: not so"),
        (OSError(28, "cannot write 12 bytes to there"), 2, "ptx: cannot write 12 bytes to there"),
        (KeyboardInterrupt(), 130, "ptx: stopped; the same command goes on from there"),
    ],
)
def test_what_a_user_can_mend_is_a_message(monkeypatch, capsys, error, code, text):
    fail_with(monkeypatch, error)
    assert text_of(capsys, "demo", code=code) == text


def test_a_bug_keeps_its_traceback(monkeypatch):
    fail_with(monkeypatch, TypeError("a bug"))
    with pytest.raises(TypeError, match="a bug"):
        main(["demo"])


def fail_with(monkeypatch, error):
    """The demo raises."""

    def fails(out, **settings):
        raise error

    monkeypatch.setattr(ptx.demo, "demo", fails)
    monkeypatch.setenv("XLA_FLAGS", "")


def test_the_command_line_imports_nothing_early():
    probe = "import sys, ptx.cli; print([m for m in ('tyro', 'ptx.demo', 'matplotlib', 'rich') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
