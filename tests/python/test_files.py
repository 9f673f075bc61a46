"""Files are whole or absent."""

import os
import threading

import pytest

from parapet._files import whole_or_absent


def test_a_file_is_replaced_as_a_whole(tmp_path):
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_text("old")
    link.symlink_to(path)
    with whole_or_absent(link) as written:
        written.write_text("new")
        assert path.read_text() == "old"
    assert link.is_symlink()
    assert path.read_text() == "new"
    assert len(list(tmp_path.iterdir())) == 2


def test_what_fails_leaves_nothing(tmp_path):
    path = tmp_path / "file"

    def write():
        with whole_or_absent(path) as written:
            written.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert not list(tmp_path.iterdir())


def test_what_is_no_file_stays_what_it_is(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    read = []
    reader = threading.Thread(target=lambda: read.append(path.read_text()))
    reader.start()
    with whole_or_absent(path) as written:
        written.write_text("text")
    reader.join(timeout=60)
    assert read == ["text"]
    assert path.is_fifo()
