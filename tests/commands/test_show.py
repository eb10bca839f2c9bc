"""Proves that files print again what was said of them, and that others say why they cannot."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import timeline
from tests.support.examples import at_most
from tests.support.profile_shelf import Profile, ProfileShelf
from tests.support.run_command import Command, Outcome
from timeline.errors import SourceError, TimelineError
from timeline.reports.filed_verdict import CHECKSUM, TEXT, DamagedVerdictError, FiledVerdict
from timeline.tracks.root_rows import WHAT_CHANGED, WHAT_IS_SLOW

pytestmark = pytest.mark.sweep

SUFFIXES = (".pftrace", ".pftrace.gz", ".json", ".json.gz")
WAYS = (
    (),
    ("--kind", "detail"),
    ("--kind", "detail", "--limit", "SMALL"),
    ("--kind", "detail", "--limit", "SMALL", "--fit", "steps"),
    ("--kind", "detail", "--limit", "0", "--fit", "error"),
    ("--kind", "detail", "--limit", "SMALL", "--fit", "split"),
    ("--group-by", "rank", "--args", "none"),
)

ROW = """
SELECT
  COALESCE(EXTRACT_ARG(slice.arg_set_id, 'note.sentence'),
           EXTRACT_ARG(slice.arg_set_id, 'args.sentence'), slice.name) AS sentence,
  COALESCE(EXTRACT_ARG(slice.arg_set_id, 'note.see_why'),
           EXTRACT_ARG(slice.arg_set_id, 'args.see_why')) AS see_why
FROM slice JOIN track ON track.id = track_id
LEFT JOIN track AS above ON above.id = track.parent_id
LEFT JOIN thread_track ON thread_track.id = track_id LEFT JOIN thread USING (utid)
WHERE trim('{0}') IN (trim(track.name), thread.name) OR trim('{0}') || ': More' = thread.name
  OR (trim(above.name) = trim('{0}') AND track.name = 'More')
GROUP BY sentence, see_why
ORDER BY min(track.name = 'More' OR thread.name GLOB '*More'), min(depth)"""


FIRST_THREAD = """
SELECT thread.name FROM thread JOIN process USING (upid)
WHERE process.name = 'Overview' AND tid != pid ORDER BY tid LIMIT 1"""


def said_of(out: str) -> str:
    """What the command says of the profile, and not of the files that it wrote."""
    return out[: out.index("\nWrote ")]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_every_file_says_what_the_command_said(
    command: Command, shelf: ProfileShelf, way: Sequence[str], suffix: str
) -> None:
    """Each file of any kind, format and fit prints the verdict again, and has it as a row."""
    profile = shelf.get("torch-db", steps=6)
    small = "190KB" if suffix == ".json" else "20KB"
    options = [small if word == "SMALL" else word for word in way]
    outcome = command(profile.path, *options, "-o", f"out{suffix}")
    assert outcome.code == 0, outcome.err
    files = command.files()
    assert (len(files) > 1) is ("split" in way)
    for file in files:
        again = command("show", file)
        assert (again.code, again.err) == (0, "")
        text, _, why = again.out.partition("\nSee why: ")
        assert text == said_of(outcome.out)
        assert (f"See why: {why}" in outcome.out) if why else "See why" not in outcome.out
        sentences = timeline.read_verdict(command.directory / file).sentences
        row = command.loaded(file).rows(ROW.format(WHAT_IS_SLOW))
        assert [name for name, _ in row] == list(sentences)
        assert {why.partition("\n")[0] or None} == {arg for _, arg in row}
        if suffix.startswith(".json"):
            assert command.loaded(file).rows(FIRST_THREAD) == [(WHAT_IS_SLOW.strip(),)]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_comparisons(command: Command, shelf: ProfileShelf, suffix: str) -> None:
    """A comparison prints again what changed, and has it as a row."""
    base, new = (shelf.get("torch-db", steps=steps) for steps in (3, 6))
    outcome = command("compare", base.path, new.path, "-o", f"out{suffix}")
    again = command("show", f"out{suffix}")
    assert (again.code, again.out) == (0, said_of(outcome.out))
    assert json.loads(command("show", f"out{suffix}", "--json").out)["comparison"]
    if suffix == ".pftrace":
        (first, *_) = timeline.read_verdict(f"out{suffix}").sentences
        assert (first, None) in command.loaded(f"out{suffix}").rows(ROW.format(WHAT_CHANGED))


def test_json(command: Command, profile: Profile) -> None:
    """--json prints the verdict of the export, and the next command."""
    report = command.report(profile.path, "-o", "out.pftrace")
    shown = json.loads(command("show", "out.pftrace", "--json").out)
    assert shown["verdict"] == report["verdict"]
    assert shown["sentences"] == report["verdict"]["sentences"]
    assert shown["see_why"] == report["see_why"]
    assert (shown["schema"], shown["kind"], shown["version"]) == (
        1,
        "summary",
        timeline.__version__,
    )


def test_verbose(command: Command, shelf: ProfileShelf) -> None:
    """-v prints the steps too, as the export did."""
    profile = shelf.get("torch-db", steps=6)
    out = command(profile.path, "-v").out
    name = f"timeline-{profile.path.name}-summary-r0-1.pftrace"
    assert command("show", name, "-v").out.startswith(said_of(out))


def test_library(command: Command, profile: Profile) -> None:
    """The library reads the same; printing it says the sentences and the next command."""
    report = timeline.export(profile.path, "out.pftrace")
    found = timeline.read_verdict("out.pftrace")
    assert found.sentences == tuple(report.verdict.sentences())
    assert str(found).splitlines() == [
        *found.sentences,
        *report.verdict.commands_text(report.see_why),
    ]


def test_a_pipe_is_read_once(command: Command, profile: Profile) -> None:
    """What comes out of a pipe cannot be read again."""
    assert command(profile.path, "-o", "x.pftrace", "-q").code == 0
    pipe = command.directory / "pipe"
    os.mkfifo(pipe)
    content = (command.directory / "x.pftrace").read_bytes()
    writer = threading.Thread(target=pipe.write_bytes, args=(content,))
    writer.start()
    outcome = command("show", pipe)
    writer.join()
    assert (outcome.code, outcome.out) == (0, command("show", "x.pftrace").out)


def test_profile_that_is_called_show(command: Command, shelf: ProfileShelf) -> None:
    """A profile of that name is ./show, which messages and the next command say."""
    profile = shelf.get("torch-db")
    shutil.copytree(profile.path, "show")
    missing = command("show")
    assert missing.code == 2
    assert "tlexport ./show" in missing.err
    refused = command("show", "show")
    assert refused.code == 1
    assert "tlexport ./show" in refused.err
    assert "See why: tlexport ./show " in command("./show").out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("show", "absent.pftrace"), 1, "cannot be read"),
        (("show",), 2, "tlexport show --help"),
        (("show", "one", "two"), 2, "too many"),
        (("show", "one", "--jsno"), 2, "did you mean --json?"),
        (("shwo", "one"), 2, "did you mean show?"),
        (("show", "one", "--json", "-v"), 2, "exclude each other"),
    ],
)
def test_wrong_usage(command: Command, arguments: Sequence[str], code: int, said: str) -> None:
    """What cannot be shown has an exit code and a message on stderr."""
    outcome = command(*arguments)
    assert (outcome.code, outcome.out) == (code, "")
    assert said in outcome.err


def test_files_without_a_verdict(command: Command, profile: Profile) -> None:
    """Files of others and of older versions, and damaged ones, each say what they are."""
    command.report(profile.path, "-o", "out.json")
    content = (command.directory / "out.json").read_bytes()
    document = json.loads(content)
    facts = document["otherData"]
    version = facts["io.tlexport.version"]

    def refused(changed: bytes) -> str:
        (command.directory / "changed").write_bytes(changed)
        outcome = command("show", "changed")
        assert (outcome.code, outcome.out) == (1, "")
        return outcome.err

    said = json.dumps(facts["io.tlexport.verdict"], ensure_ascii=False)
    verdict = f'"io.tlexport.verdict":{said}'.encode()
    assert verdict in content
    assert f"written by tlexport {version}, which put no verdict" in refused(
        content.replace(verdict, b'"other":0')
    )
    assert "was changed" in refused(content.replace(b"sentences", b"SENTENCES", 1))
    assert "not written by tlexport" in refused(b'{"displayTimeUnit":"ns","traceEvents":[]}')
    assert "incomplete" in refused(content[:500])
    assert "not a trace that tlexport wrote" in refused(b"Hello")


@settings(max_examples=at_most(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_damaged_files(suffix: str, profile: Profile, tmp_path: Path, data: st.DataObject) -> None:
    """Whatever is changed in a file, it says what it said or is refused."""
    file = tmp_path / f"out{suffix}"
    if not file.exists():
        timeline.export(profile.path, file)
    content = bytearray(file.read_bytes())
    said = timeline.read_verdict(file).sentences
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, 4_000)) % (len(content) + 1)
        content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    changed = tmp_path / "changed"
    changed.write_bytes(content)
    try:
        assert timeline.read_verdict(changed).sentences == said
    except TimelineError as error:
        assert isinstance(error, SourceError)


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "{}", "\ud800", '{"version":"\udcff"}', "[" * 99_999]
)
def test_payloads_that_are_none(text: str) -> None:
    """Text that is no object of a verdict, or no text at all, is refused."""
    checksum = str(zlib.crc32(text.encode("utf-8", "surrogatepass")))
    with pytest.raises(DamagedVerdictError):
        FiledVerdict.from_attributes({TEXT: text, CHECKSUM: checksum})


def test_payloads_of_others(command: Command, profile: Profile) -> None:
    """Text with a right checksum is checked all the same, and no terminal obeys it."""
    command.report(profile.path, "-o", "out.json")
    document = json.loads((command.directory / "out.json").read_bytes())
    facts = document["otherData"]

    def shown(*more: str, **changed: object) -> Outcome:
        text = json.dumps({**json.loads(facts[TEXT]), **changed})
        others = {**facts, TEXT: text, CHECKSUM: str(zlib.crc32(text.encode()))}
        content = json.dumps({**document, "otherData": others}, separators=(",", ":"))
        (command.directory / "changed").write_text(content)
        return command("show", "changed", *more)

    assert shown(lines=["a\x1b[2Jb\nc"], commands=[]).out == "a\\x1b[2Jb\\nc\n"
    for name, value in {"lines": "one", "sentences": [1], "verdict": [], "schema": 2}.items():
        outcome = shown(**{name: value})
        assert (outcome.code, outcome.out) == (1, ""), name
        assert "its verdict is of another version of tlexport. Export the" in outcome.err
    older = shown(lines=[])
    assert (older.code, older.out) == (1, "")
    assert "put no printed lines into files. Export the profile again, or print" in older.err
    assert shown("--json", lines=[]).report["sentences"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_small_limits(command: Command, shelf: ProfileShelf, suffix: str) -> None:
    """The verdict counts within the limit, and is whole in the smallest file there is."""
    profile = shelf.get("torch-db", steps=6)
    refused = command(profile.path, "--limit", "1KB", "-o", f"out{suffix}")
    assert refused.code == 4
    (least,) = map(int, re.findall(r"smallest that works is (\d+) bytes", refused.err))
    outcome = command(profile.path, "--limit", f"{least}B", "-o", f"out{suffix}")
    assert outcome.code == 0
    assert (command.directory / f"out{suffix}").stat().st_size <= least
    assert command("show", f"out{suffix}").out.startswith(said_of(outcome.out))
