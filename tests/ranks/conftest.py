"""Fixtures that tests of ranks in several processes share."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor

import pytest

from tests.support.ranks_in_processes import Command, Outcome, contents
from timeline.cli.main import main


@pytest.fixture
def command(
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Command:
    """Run the command in a new directory."""

    def run(*arguments: object) -> Outcome:
        directory = tmp_path_factory.mktemp("here")
        monkeypatch.chdir(directory)
        code = main([*(str(argument) for argument in arguments), "-o", "timeline.pftrace"])
        said = capsys.readouterr()
        return Outcome(code, said.out, said.err, contents(directory))

    return run


@pytest.fixture(name="processes", params=[1, 2])
def number_of_processes(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


@pytest.fixture(scope="module")
def pool() -> Iterator[Executor]:
    """Two processes that several tests share, where nothing happens to them."""
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        yield pool
