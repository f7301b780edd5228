"""Files between a candidate's folder and the judge's: nothing outside is read or written, whatever links the candidate lays."""

import os

import pytest

from tools.handover import copy_new


@pytest.fixture
def folders(tmp_path):
    made, target = tmp_path / "made", tmp_path / "scratch" / "triton"
    (made / "key").mkdir(parents=True)
    (made / "key" / "launcher.so").write_bytes(b"new")
    target.parent.mkdir()
    return made, target


def test_what_is_missing_is_copied_and_what_is_there_stays_the_same_file(folders):
    made, target = folders
    copy_new(made, target)
    launcher = target / "key" / "launcher.so"
    launcher.write_bytes(b"mapped")
    before = os.stat(launcher)
    (made / "key" / "other.json").write_text("{}")
    copy_new(made, target)
    assert launcher.read_bytes() == b"mapped"
    assert (os.stat(launcher).st_ino, os.stat(launcher).st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert (target / "key" / "other.json").read_text() == "{}"


@pytest.mark.parametrize("level", ["triton", "triton/key", "triton/key/launcher.so"])
def test_a_link_in_the_candidates_folder_leads_nowhere(folders, tmp_path, level):
    made, target = folders
    outside = tmp_path / "outside"
    outside.mkdir()
    link = target.parent / level
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(outside / "planted" if level.endswith(".so") else outside)
    copy_new(made, target)
    assert not list(outside.iterdir())


def test_a_link_or_a_pipe_among_the_candidates_files_is_not_taken(folders, tmp_path):
    made, target = folders
    (tmp_path / "secret").write_text("not for you")
    (made / "key" / "stolen.json").symlink_to(tmp_path / "secret")
    (made / "all").symlink_to(tmp_path)
    os.mkfifo(made / "key" / "pipe")
    copy_new(made, target)
    assert sorted(p.name for p in target.rglob("*")) == ["key", "launcher.so"]


def test_no_more_is_taken_than_there_is_room_for(folders):
    made, target = folders
    (made / "key" / "large.cubin").write_bytes(b"x" * 1000)
    copy_new(made, target, most=100)
    assert sorted(p.name for p in target.rglob("*")) == ["key", "launcher.so"]


def test_a_folder_that_is_not_there_is_no_trouble(tmp_path):
    copy_new(tmp_path / "nothing", tmp_path / "target")
    assert not (tmp_path / "target").exists()
