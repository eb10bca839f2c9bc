"""Proves that ranks read by a real Dask cluster make the same files, or the same errors."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.made_source import Death, Nap, made_sources
from tests.support.profile_shelf import Copier, ProfileShelf
from tests.support.ranks_in_processes import DAMAGES, FITS, Command, ranks_read, sized
from tests.support.remote_places import web_server
from timeline.errors import UsageError
from timeline.options import ReadingOptions
from timeline.progress import Silent
from timeline.ranks import executors
from timeline.ranks.workers import worker_pool_for

pytestmark = pytest.mark.sweep


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster of two processes, one task each at a time."""
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    import dask

    with (
        # A busy machine takes longer to start a worker again than it would be missed for.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "300s"}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
    ):
        yield cluster


@pytest.fixture
def executor(cluster: Any) -> Iterator[str]:
    """The cluster's address; a client that a test leaves behind does not meet the next test."""
    yield address_of(cluster)
    close_client()


def address_of(cluster: Any) -> str:
    return str(cluster.scheduler_address).replace("tcp://", executors.DASK)


def close_client() -> bool:
    """Close the client of this process; whether there was one."""
    import distributed

    try:
        client = distributed.default_client()
    except ValueError:
        return False
    client.close()
    return True


@pytest.mark.parametrize("way", ["coarsened", "leading steps"])
def test_a_cluster_writes_the_same_bytes(
    command: Command, shelf: ProfileShelf, executor: str, way: str
) -> None:
    path = shelf.get("mindspore-2.1", ranks=3).path
    options = ["--kind", "detail", *sized(command, path, FITS[way]), "--json"]
    alone = command(path, *options, "-j", "1")
    assert alone.code == 0
    assert command(path, *options, "--executor", executor) == alone


def test_a_cluster_fetches_what_its_ranks_need(
    command: Command, shelf: ProfileShelf, executor: str
) -> None:
    """Its workers see no copy that the client makes; the file says the same."""
    pytest.importorskip("aiohttp", reason="aiohttp is not installed")
    path = shelf.get("torch-db", ranks=3).path
    with web_server(path.parent) as port:
        options = [f"http://127.0.0.1:{port}/{path.name}", "--kind", "detail", "--json"]
        alone = command(*options, "-j", "1")
        assert alone.code == 0, alone.err
        assert command(*options, "--executor", executor).files == alone.files


def test_a_cluster_tells_ranks_that_cannot_be_read(
    command: Command, copied: Copier, executor: str
) -> None:
    """The error or the warning of a rank is the one that this process would give."""
    damage = DAMAGES["text cut off"]
    profile = copied(damage.layout, ranks=3)
    damage.strike(profile, 1)
    for more in ((), ("--keep-going",)):
        options = (profile.path, "--kind", "detail", *more)
        assert command(*options, "--executor", executor) == command(*options, "-j", "1")


def test_a_lost_worker_of_a_cluster_is_blamed_on_its_rank(executor: str, tmp_path: Path) -> None:
    """And on none of those that waited for the same worker; one other worker tried it, no more."""
    tally = tmp_path / "deaths"
    sources = made_sources(
        6, {1: Death(after_seconds=0.5, tally=tally), 0: Nap(0.3), 2: Nap(0.3), 3: Nap(0.3)}
    )
    workers = worker_pool_for(sources, ReadingOptions(executor=executor, keep_going=True), Silent())
    assert ranks_read(workers, sources) == [0, 2, 3, 4, 5]
    assert workers.failures.keys() == {1}
    assert re.match("rank 1: its process died, and so did another one", workers.failures[1])
    assert tally.stat().st_size == 2


def test_a_cluster_without_workers_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    monkeypatch.setattr(executors, "PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(executors, "LOOK_SECONDS", 0.3)
    sources = made_sources(2, {})
    with distributed.LocalCluster(n_workers=0, processes=True, dashboard_address=":0") as cluster:
        reading = ReadingOptions(executor=address_of(cluster))
        workers = worker_pool_for(sources, reading, Silent())
        with pytest.raises(UsageError, match=r"has no workers.*dask worker tcp://"):
            ranks_read(workers, sources)


def test_an_export_leaves_no_client_behind(
    command: Command, shelf: ProfileShelf, executor: str
) -> None:
    """It would be the one that the next user of Dask in this process gets."""
    path = shelf.get("mindspore-2.1", ranks=3).path
    assert command(path, "--executor", executor).code == 0
    assert not close_client()


def test_an_address_of_no_cluster_is_wrong_usage(command: Command, shelf: ProfileShelf) -> None:
    outcome = command(shelf.get("torch-db", ranks=3).path, "--executor", "foo")
    assert (outcome.code, outcome.out, outcome.files) == (2, "", {})
    assert outcome.err.startswith("tlexport: --executor foo is ")
    assert "dask://HOST:PORT" in outcome.err


def test_a_password_in_an_address_is_not_shown(command: Command, shelf: ProfileShelf) -> None:
    outcome = command(
        shelf.get("torch-db", ranks=3).path, "--executor", "dask://me:secret@127.0.0.1:9"
    )
    assert outcome.code == 2
    assert "dask://127.0.0.1:9: no scheduler" in outcome.err
    assert "secret" not in outcome.err


def test_an_address_where_nobody_answers_is_wrong_usage(
    command: Command, shelf: ProfileShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the address; nothing is read, nothing written."""
    pytest.importorskip("distributed", reason="Dask is not installed")
    monkeypatch.setattr(executors, "CONNECT_SECONDS", 1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        address = f"dask://127.0.0.1:{silent.getsockname()[1]}"
        outcome = command(shelf.get("torch-db", ranks=3).path, "--executor", address)
    assert (outcome.code, outcome.out, outcome.files) == (2, "", {})
    assert re.match(rf"tlexport: --executor {address}: no scheduler answers there", outcome.err)
