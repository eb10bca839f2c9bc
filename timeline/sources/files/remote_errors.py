"""What other file systems raise, as errors of the system that hold no credentials."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from urllib.parse import parse_qsl, unquote, urlsplit

from timeline.patterns import compile_late

__all__ = ["remote_failures", "secrets_in", "system_errors"]

_OF_LIBRARIES = {
    "aiohttp": ("ClientError",),
    "azure.core.exceptions": ("AzureError",),
    "botocore.exceptions": ("BotoCoreError", "ClientError"),
    "botocore.parsers": ("ResponseParserError",),
    "gcsfs.retry": ("HttpError",),
    "google.auth.exceptions": ("GoogleAuthError",),
    "paramiko": ("SSHException",),
}
"""What libraries raise that is no error of the system, where they are loaded."""
_URL_END = compile_late(r"(://[^\s?'\"<>]*)\?[^\s'\"<>]*")
_USER = compile_late(r"(?<=://)[^/@\s]*@")
_GONE, _REFUSED = (404, 410), (401, 403)
"""What web servers say of what is not there, and to whom they do not know."""
_LEAST_SECRET = 4
"""Characters: shorter parts of a URL are no secrets, and parts of words."""


def remote_failures() -> tuple[type[BaseException], ...]:
    """All that a file system may raise because of what it is, not because of an error in it."""
    found = [
        vars(sys.modules[module])[name]
        for module, names in _OF_LIBRARIES.items()
        if module in sys.modules
        for name in names
        if name in vars(sys.modules[module])
    ]
    return (OSError, EOFError, ValueError, asyncio.TimeoutError, *found)


def secrets_in(url: str) -> frozenset[str]:
    """What nobody may see of a URL: user, password and the values of its query."""
    found = set[str]()
    for part in url.split("::"):
        split = urlsplit(part)
        user = split.netloc.rpartition("@")[0]
        found |= {
            user,
            *user.split(":"),
            split.query,
            *(text for _, text in parse_qsl(split.query)),
        }
        found |= {text.partition("=")[2] for text in split.query.split("&")}
    found |= {unquote(text) for text in found}
    return frozenset(text for text in found if len(text) >= _LEAST_SECRET)


@contextmanager
def system_errors(path: object, secrets: Collection[str]) -> Iterator[None]:
    """A `with` block in which whatever a file system raises is an error of the system.

    Its text names the cause, and no credentials; the error that it was is not chained to it.

    Raises:
        OSError: something failed.
    """
    try:
        yield
    except remote_failures() as error:
        raise _as_system_error(error, str(path), secrets) from None


def _as_system_error(error: BaseException, path: str, secrets: Collection[str]) -> OSError:
    status = getattr(error, "status", None)
    if isinstance(error, FileNotFoundError) or status in _GONE:
        cause = error.__cause__  # whatever fails on the web is not found
        if isinstance(cause, remote_failures()) and getattr(cause, "status", None) not in _GONE:
            return _as_system_error(cause, path, secrets)
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if isinstance(error, PermissionError) or status in _REFUSED:
        said = "permission denied; check the credentials that its file system is given"
        return PermissionError(errno.EACCES, said, path)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OSError(error.errno, os.strerror(error.errno), path)
    kind = type(error).__name__
    text = _without_secrets(str(error), secrets)
    number = error.errno if isinstance(error, OSError) and error.errno else errno.EIO
    return OSError(number, f"{kind}: {text}" if text else kind, path)


def _without_secrets(text: str, secrets: Collection[str]) -> str:
    text = _USER.sub("", _URL_END.sub(r"\1", text))
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text.rstrip(".")
