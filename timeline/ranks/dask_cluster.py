"""A Dask cluster as an executor: what kills its worker is tried once more, on another one."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future
from typing import Any, TypeVar

from timeline.errors import UsageError

DASK = "dask://"
"""What addresses of Dask schedulers begin with."""
CONNECT_SECONDS = 10
PATIENCE_SECONDS = 60.0
"""For which a cluster may have no worker: new ones take a while to start."""
LOOK_SECONDS = 5.0
TRIES = 2
_Result = TypeVar("_Result")


class DiedTwiceError(Exception):
    """Two workers died while they did a piece of work."""


class Cluster(Executor):
    """Has the workers of a cluster call functions.

    Its scheduler would give work to four workers, one after the other, if each dies, and then blame
    what only waited for one of them, too. So what begins is counted here.
    """

    def __init__(self, address: str) -> None:
        """Connect to the scheduler at an address.

        Raises:
            UsageError: there is none, or Dask is not installed.
        """
        if not address.startswith(DASK):
            raise UsageError(
                f"--executor {address} is no Dask address.", do=f"Write {DASK}HOST:PORT."
            )
        try:
            from distributed import Client
        except ImportError as error:
            raise UsageError("--executor needs Dask.", do="pip install 'tlexport[dask]'") from error
        self._address = address
        try:
            self._client = Client(f"tcp://{address.removeprefix(DASK)}", timeout=CONNECT_SECONDS)
        except (OSError, ValueError) as error:
            raise UsageError(
                f"--executor {address}: no scheduler answers there: {error}.",
                do="Start one with: dask scheduler",
            ) from error
        self._executor = self._client.get_executor(pure=False)

    def threads(self) -> int:
        """Return how many pieces of work run at once."""
        return sum(self._client.nthreads().values())

    def submit(self, fn: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:
        """Have a worker call a function."""
        name = f"tlexport-{uuid.uuid4().hex}"
        future: Future[_Result] = self._executor.submit(_call, name, fn, *args, **kwargs)
        return future

    def result(self, future: Future[_Result]) -> _Result:
        """Return the result of a call, as long as there is a worker that may do it.

        Raises:
            UsageError: there is none, or no scheduler any more.
        """
        seen = time.monotonic()
        while True:
            try:
                return future.result(LOOK_SECONDS)
            except TimeoutError:
                if future.done():
                    raise
            except CancelledError as error:
                raise UsageError(
                    f"--executor {self._address}: its scheduler is gone.", do="Start it again."
                ) from error
            now = time.monotonic()
            if self.threads():
                seen = now
            elif now - seen > PATIENCE_SECONDS:
                raise UsageError(
                    f"--executor {self._address}: it has no workers.",
                    do=f"Start some with: dask worker tcp://{self._address.removeprefix(DASK)}",
                )

    def drop(self) -> None:
        """Forget all work that is not done; the next begins as if there had been none."""
        self._executor.shutdown(wait=False)
        self._executor = self._client.get_executor(pure=False)

    def close(self) -> None:
        """Leave the cluster as it was."""
        self._executor.shutdown(wait=False)
        self._client.close()


def _call(name: str, fn: Callable[..., _Result], *args: Any, **kwargs: Any) -> _Result:
    """Call a function in a worker, unless others died of it.

    Raises:
        DiedTwiceError: two of them did.
    """
    from distributed import Event

    begun = [Event(f"{name}-{count}") for count in range(TRIES)]
    now = next((one for one in begun if not one.is_set()), None)
    try:
        if now is None:
            raise DiedTwiceError
        now.set()
        return fn(*args, **kwargs)
    finally:
        for one in begun:
            one.clear()
