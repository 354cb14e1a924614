"""Downloads from a real local server: resumed, checked, and whole or not there at all."""

import hashlib
import io
import re
import signal
import subprocess
import sys
import tarfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from at_once import at_once
from polarbear.base.errors import DataError
from polarbear.data.cifar100 import open_cifar100
from polarbear.data.cifar100_official import OFFICIAL, OfficialFile
from polarbear.data.fetch import fetch, fetch_cifar100

CONTENT = np.random.default_rng(0).bytes(300_000)


def md5(content):
    return hashlib.md5(content).hexdigest()


@dataclass
class Site:
    """What a local server sends, how it misbehaves, and what it was asked and sent."""

    content: bytes = CONTENT
    ranges: bool = True
    cuts: list[int] = field(default_factory=list)  # bytes after which each answer ends early
    statuses: list[int] = field(default_factory=list)  # errors to answer first
    shift: int = 0  # how far off the range sent is
    tell_length: bool = True
    pause: float = 0.0  # seconds between 10,000 bytes
    asked: list[str | None] = field(default_factory=list)
    sent: int = 0
    url: str = ""

    def answer(self, handler):
        given = handler.headers.get("Range")
        self.asked.append(given)
        if self.statuses:
            return handler.send_error(self.statuses.pop(0))
        start = int(re.fullmatch(r"bytes=(\d+)-", given)[1]) if given and self.ranges else 0
        if start and start >= len(self.content):
            handler.send_response(416)
            handler.send_header("Content-Range", f"bytes */{len(self.content)}")
            handler.send_header("Content-Length", "0")
            return handler.end_headers()
        return self.send(handler, start)

    def send(self, handler, start):
        total = len(self.content)
        first = start + self.shift if start else 0
        handler.send_response(206 if start else 200)
        if start:
            handler.send_header("Content-Range", f"bytes {first}-{total - 1}/{total}")
        if self.tell_length:
            handler.send_header("Content-Length", str(total - first))
        handler.end_headers()
        body = self.content[first:][: self.cuts.pop(0) if self.cuts else None]
        for at in range(0, len(body), 10_000):
            self.sent += handler.wfile.write(body[at : at + 10_000])
            time.sleep(self.pause)


@contextmanager
def serving(site):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            try:
                site.answer(self)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    site.url = f"http://127.0.0.1:{server.server_port}/file.bin"
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def site():
    with serving(Site()) as running:
        yield running


@pytest.fixture
def target(tmp_path):
    return tmp_path / "folder" / "file.bin"


def part_of(target):
    return target.with_name(target.name + ".part")


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def leave_part(target, content):
    target.parent.mkdir()
    part_of(target).write_bytes(content)


def get(site, target, **settings):
    return fetch(site.url, target, md5=md5(CONTENT), **({"pause": 0.0} | settings))


# --- one file ---


def test_whole_file_with_progress(site, target):
    told = []
    assert get(site, target, progress=lambda done, total: told.append((done, total))) == target
    assert target.read_bytes() == CONTENT
    assert names_in(target.parent) == ["file.bin"]
    assert told[0] == (0, len(CONTENT))
    assert told[-1] == (len(CONTENT), len(CONTENT))
    assert told == sorted(told)


def test_present_file_needs_no_network(site, target):
    get(site, target)
    get(site, target)
    assert len(site.asked) == 1


def test_present_file_of_other_content_is_replaced(site, target):
    target.parent.mkdir()
    target.write_bytes(b"something else")
    get(site, target)
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize("size", [None, len(CONTENT)])
def test_resume_asks_for_the_rest_alone(site, target, size):
    leave_part(target, CONTENT[:200_000])
    told = []
    get(site, target, size=size, progress=lambda done, total: told.append((done, total)))
    assert target.read_bytes() == CONTENT
    assert site.asked == ["bytes=200000-"]
    assert site.sent == 100_000
    assert told[0] == (200_000, 300_000)


def test_server_without_ranges_starts_over(site, target):
    site.ranges = False
    leave_part(target, b"x" * 200_000)
    get(site, target)
    assert target.read_bytes() == CONTENT
    assert site.asked == ["bytes=200000-"]


def test_server_that_sends_another_range_starts_over(site, target):
    site.shift = -7
    leave_part(target, CONTENT[:200_000])
    get(site, target)
    assert target.read_bytes() == CONTENT
    assert site.asked == ["bytes=200000-", None]


@pytest.mark.parametrize("size", [None, len(CONTENT)])
def test_complete_part_is_taken_as_it_is(site, target, size):
    leave_part(target, CONTENT)
    get(site, target, size=size)
    assert target.read_bytes() == CONTENT
    assert site.sent == 0


@pytest.mark.parametrize("size", [None, len(CONTENT)])
@pytest.mark.parametrize("content", [b"x" * len(CONTENT), CONTENT + b"more"])
def test_part_as_long_as_the_file_but_different_starts_over(site, target, size, content):
    leave_part(target, content)
    get(site, target, size=size)
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize("tell_length", [True, False])
def test_cut_connection_is_resumed(site, target, tell_length):
    site.cuts, site.tell_length = [100_000, 50_000], tell_length
    get(site, target, size=len(CONTENT))
    assert target.read_bytes() == CONTENT
    assert site.asked == [None, "bytes=100000-", "bytes=150000-"]


def test_cut_off_keeps_the_part_and_the_next_call_resumes(site, target):
    site.cuts = [100_000, 20_000]
    with pytest.raises(DataError) as caught:
        get(site, target, attempts=2, size=len(CONTENT))
    message = str(caught.value)
    assert "120,000 of 300,000 bytes have come" in message
    assert f"kept in {part_of(target)}, and running it again resumes" in message
    assert not target.exists()
    assert part_of(target).read_bytes() == CONTENT[:120_000]
    get(site, target)
    assert target.read_bytes() == CONTENT
    assert site.sent == len(CONTENT)


def test_waits_grow_between_tries(site, target, monkeypatch):
    waits = []
    monkeypatch.setattr(time, "sleep", waits.append)
    site.statuses = [503, 429, 500]
    get(site, target, pause=3.0)
    assert [wait for wait in waits if wait] == [3.0, 6.0, 12.0]
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize("begun", [b"", b"x" * 1000])
def test_altered_content_is_refused_and_removed(site, target, begun):
    leave_part(target, begun)
    site.content = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])
    with pytest.raises(DataError, match=r"it was removed\. Run it again") as caught:
        get(site, target)
    assert f"expected is {md5(CONTENT)}" in str(caught.value)
    assert begun or md5(site.content) in str(caught.value)
    assert names_in(target.parent) == []


def test_absent_page_is_said_at_once(site, target):
    site.statuses = [404] * 5
    with pytest.raises(DataError, match=r"cannot fetch http.*file\.bin: .* 404 Not Found"):
        get(site, target)
    assert len(site.asked) == 1


def test_no_server(target):
    with serving(Site()) as site:
        pass
    with pytest.raises(DataError, match=r"no connection .*\. Nothing has come"):
        get(site, target, attempts=2)


def test_other_addresses_are_refused(target):
    with pytest.raises(DataError, match="only http:// and https://"):
        fetch("file:///etc/hostname", target, md5="")


def test_killed_download_resumes(site, target):
    site.pause = 0.02
    code = "import sys; from polarbear.data.fetch import fetch; fetch(*sys.argv[1:3], md5='')"
    process = subprocess.Popen([sys.executable, "-c", code, site.url, str(target)])
    deadline = time.monotonic() + 30
    part = part_of(target)
    while not (part.exists() and part.stat().st_size > 50_000) and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    came = part.read_bytes()
    assert 50_000 < len(came) < len(CONTENT)
    assert came == CONTENT[: len(came)]
    assert not target.exists()
    site.pause = 0.0
    get(site, target)
    assert target.read_bytes() == CONTENT
    assert site.asked == [None, f"bytes={len(came)}-"]


@pytest.mark.parametrize("begun", [0, 250_000])
def test_several_processes_at_once_download_once(site, target, begun):
    site.pause = 0.01
    leave_part(target, CONTENT[:begun])
    before = "import sys\nfrom polarbear.data.fetch import fetch\n"
    code = "fetch(*sys.argv[1:3], md5=sys.argv[3])"
    ended = at_once(4, before, code, site.url, target, md5(CONTENT))
    assert [one.code for one in ended] == [0] * 4, ended
    assert target.read_bytes() == CONTENT
    assert site.sent == len(CONTENT) - begun
    assert names_in(target.parent) == ["file.bin"]


def test_a_killed_process_leaves_a_lock_that_holds_nobody_up(site, target):
    leave_part(target, CONTENT[:1000])
    code = "import os, sys, pathlib, signal\nfrom polarbear.base.lock import alone\n"
    code += "with alone(pathlib.Path(sys.argv[1]), wait=True): os.kill(os.getpid(), signal.SIGKILL)"
    ended = subprocess.run([sys.executable, "-c", code, target], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert names_in(target.parent) == ["file.bin.lock", "file.bin.part"]
    get(site, target)
    assert names_in(target.parent) == ["file.bin"]


# --- CIFAR-100 ---


FILES = {"train": CONTENT[:90_000], "test": CONTENT[90_000:100_000], "meta": b"names"}
EXPECTED = {
    name: OfficialFile(len(content), md5(content), hashlib.sha256(content).hexdigest())
    for name, content in FILES.items()
}


def archive_of(files, folder="cifar-100-python", **more):
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz", compresslevel=1) as tar:
        for name, content in (files | more).items():
            info = tarfile.TarInfo(f"{folder}/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return written.getvalue()


def get_cifar(site, root, **settings):
    settings = {"md5": md5(site.content), "size": None, "files": EXPECTED, "pause": 0} | settings
    return fetch_cifar100(root, site.url, **settings)


def holds_files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()} == FILES


def test_cifar_is_unpacked_and_nothing_else_left(site, tmp_path):
    site.content = archive_of(FILES, **{"file.txt~": b"?", "../../escaped": b"?"})
    folder = get_cifar(site, tmp_path / "root")
    assert folder == tmp_path / "root" / "cifar-100-python"
    assert holds_files(folder)
    assert names_in(tmp_path / "root") == ["cifar-100-python"]
    assert names_in(tmp_path) == ["root"]
    assert get_cifar(site, tmp_path / "root") == folder
    assert len(site.asked) == 1


def test_cifar_without_a_connection_can_be_brought_by_hand(tmp_path):
    with serving(Site()) as site:
        pass
    with pytest.raises(DataError, match=r"Nothing has come\. By hand: download https") as refusal:
        get_cifar(site, tmp_path, attempts=1)
    archive = tmp_path / "cifar-100-python.tar.gz"
    assert f"save it as {archive} and run this again" in str(refusal.value)
    assert f"train and test in {tmp_path / 'cifar-100-python'}" in str(refusal.value)
    assert str(tmp_path / "cifar100.npz") in str(refusal.value)


def test_cifar_resumes_after_a_cut(site, tmp_path):
    site.content = archive_of(FILES)
    site.cuts = [40_000]
    with pytest.raises(DataError, match=r"40,000 bytes have come"):
        get_cifar(site, tmp_path, attempts=1)
    assert names_in(tmp_path) == ["cifar-100-python.tar.gz.part"]
    assert holds_files(get_cifar(site, tmp_path))
    assert site.sent == len(site.content)


def test_several_processes_at_once_get_cifar_once(site, tmp_path):
    site.content, site.pause = archive_of(FILES), 0.01
    before = "import sys; sys.path[:0] = sys.argv[1].split(':')\nfrom test_fetch import *\n"
    code = "fetch_cifar100(*sys.argv[2:4], md5=sys.argv[4], size=None, files=EXPECTED)"
    here = Path(__file__).parent
    words = (f"{here}:{here.parent}", tmp_path, site.url, md5(site.content))
    ended = at_once(3, before, code, *words)
    assert [one.code for one in ended] == [0] * 3, ended
    assert holds_files(tmp_path / "cifar-100-python")
    assert names_in(tmp_path) == ["cifar-100-python"]
    assert site.sent == len(site.content)


def test_cifar_replaces_damaged_files_alone(site, tmp_path):
    site.content = archive_of(FILES)
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    (folder / "train").write_bytes(b"x" * 90_000)
    (folder / "notes").write_bytes(b"mine")
    get_cifar(site, tmp_path)
    assert (folder / "notes").read_bytes() == b"mine"
    (folder / "notes").unlink()
    assert holds_files(folder)


def test_cifar_keeps_an_archive_it_found(site, tmp_path):
    site.content = archive_of(FILES)
    archive = tmp_path / "cifar-100-python.tar.gz"
    archive.write_bytes(site.content)
    assert holds_files(get_cifar(site, tmp_path))
    assert archive.exists()
    assert site.asked == []


BAD_ARCHIVES = [
    (archive_of({"train": FILES["train"], "test": FILES["test"]}), "does not hold the official"),
    (archive_of(FILES | {"test": b"y" * 10_000}), "does not hold the official train, test, meta"),
    (archive_of(FILES, folder="elsewhere"), "does not hold the official"),
    (archive_of(FILES)[:50_000], "cannot be read as an archive"),
    (b"no archive", "cannot be read as an archive"),
]


@pytest.mark.parametrize(("content", "message"), BAD_ARCHIVES)
def test_cifar_from_a_wrong_archive_leaves_no_folder(site, tmp_path, content, message):
    site.content = content
    with pytest.raises(DataError, match=message):
        get_cifar(site, tmp_path)
    assert names_in(tmp_path) == ["cifar-100-python.tar.gz"]


def test_link_in_place_of_a_file_is_refused(site, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(FILES["meta"])
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as tar:
        info = tarfile.TarInfo("cifar-100-python/meta")
        info.type, info.linkname, info.size = tarfile.SYMTYPE, str(secret), len(FILES["meta"])
        tar.addfile(info)
    site.content = written.getvalue()
    with pytest.raises(DataError, match="does not hold the official meta"):
        get_cifar(site, tmp_path / "root", files={"meta": EXPECTED["meta"]})


def test_real_cifar(site, cifar_root, tmp_path):
    folder = cifar_root / "cifar-100-python"
    content = io.BytesIO()
    # Stored without compression: zlib would take 5 s of this test.
    with tarfile.open(fileobj=content, mode="w:gz", compresslevel=0) as tar:
        for name in OFFICIAL:
            tar.add(folder / name, f"cifar-100-python/{name}")
    site.content = content.getvalue()
    get_cifar(site, tmp_path, files=OFFICIAL)
    fetched, original = open_cifar100(tmp_path), open_cifar100(cifar_root)
    assert fetched.checksum == original.checksum
    np.testing.assert_array_equal(fetched.train[:100], original.train[:100])
