"""Edits of an overlay file: one at a time, atomic, and readable for its former readers."""

import errno
import os
import stat
from pathlib import Path

import pytest

from covey.cli.administration.membership import OverlayEdit
from covey.overlay.documents import ConfigError

TEXT = """overlay: two   # a comment
brokers: {b1: {address: "127.0.0.1:7001"}, b2: {address: "127.0.0.1:7002"}}
links: [[b1, b2]]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "overlay.yaml"
    file.write_text(TEXT)
    return file


def _join(edit: OverlayEdit, name: str = "b3") -> None:
    edit.add(name, "127.0.0.1:7003", ["b1"])


def test_one_edits_a_file_at_a_time(path: Path) -> None:
    """Two edits of the same text both found it unchanged, and the second undid the first."""
    with OverlayEdit(path) as edit:
        with pytest.raises(ConfigError, match="another covey broker join or leave is at work"):
            OverlayEdit(path, 0)
        _join(edit)
        edit.write()
    with OverlayEdit(path, 0) as edit:
        assert "b3" in edit.before.brokers
    path.write_text("overlay: [")
    for _ in range(2):  # one that fails keeps no lock
        with pytest.raises(ConfigError, match=r"overlay\.yaml"):
            OverlayEdit(path, 0)


def test_what_was_written_is_put_back_unless_another_has_changed_it(path: Path) -> None:
    with OverlayEdit(path) as edit:
        _join(edit)
        edit.write()
        edit.put_back()
        assert path.read_text() == TEXT
        path.write_text(TEXT + "\n")
        for change in (edit.write, edit.put_back):
            with pytest.raises(ConfigError, match="another process has changed it"):
                change()
        assert path.read_text() == TEXT + "\n"


def test_on_a_full_disk_the_file_stays_and_nothing_is_beside_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with OverlayEdit(path) as edit:
        _join(edit)
        with pytest.raises(ConfigError, match=r"overlay\.yaml: cannot be written: No space left on device"):
            edit.write()
    assert path.read_text() == TEXT
    assert list(path.parent.iterdir()) == [path]


def test_the_file_keeps_its_owner_and_permissions(path: Path) -> None:
    """Else brokers of another user could not read it after root has let a broker join."""
    owner = 4711 if os.geteuid() == 0 else os.geteuid()
    os.chown(path, owner, -1)
    path.chmod(0o640)
    with OverlayEdit(path) as edit:
        _join(edit)
        edit.write()
    status = path.stat()
    assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (owner, 0o640)


@pytest.mark.parametrize("name", ["yes", "null", "12", "1_0", "0o17", "~", "b: c", "1:30", "#b"])
def test_a_name_that_looks_like_something_else_is_written_in_quotes(path: Path, name: str) -> None:
    with OverlayEdit(path) as edit:
        _join(edit, name)
        edit.write()
    with OverlayEdit(path) as edit:
        assert edit.before.links[-1] == ("b1", name)
        edit.remove("b1")
        edit.write()
    with OverlayEdit(path) as edit:
        assert edit.before.links == (("b2", name),)
        edit.remove(name)
        edit.write()
    with OverlayEdit(path) as edit:
        assert list(edit.before.brokers) == ["b2"]
