"""Downloads that resume, are checked and appear under their name only when whole."""

import logging
import os
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from polarbear.base.errors import DataError
from polarbear.base.files import file_digest, write_whole
from polarbear.base.guarded import naming
from polarbear.base.lock import alone
from polarbear.data.cifar100 import places
from polarbear.data.cifar100_official import FOLDER, OFFICIAL, OfficialFile, check_files

log = logging.getLogger("polarbear")

CIFAR100_URL = "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
CIFAR100_MD5 = "eb9058c3a382ffc7106e4002c42a8d85"
CIFAR100_SIZE = 169_001_437

BLOCK = 1 << 20
TIMEOUT = 30.0

Progress = Callable[[int, int | None], None]
"""Called with the bytes that are there and the bytes in all, where the server tells."""


class _CutError(Exception):
    """The connection failed or ended early: worth another try."""


def fetch(
    url: str,
    target: str | Path,
    *,
    md5: str,
    size: int | None = None,
    progress: Progress | None = None,
    attempts: int = 5,
    pause: float = 1.0,
) -> Path:
    """Return ``target``, downloaded from ``url`` unless it is already there with the right md5.

    What has come is kept as ``<target>.part``, and the next call takes it up from there. A cut
    connection is tried ``attempts`` times, after ``pause`` seconds, then twice that, and so on.
    While another process downloads the same file, this one waits, and then takes what came.
    """
    target = Path(target)
    if not url.startswith(("http://", "https://")):
        raise DataError(f"cannot fetch {url!r}: only http:// and https:// addresses")
    if _has_md5(target, md5):
        return target
    with alone(target, wait=True):
        if _has_md5(target, md5):
            return target
        part = target.with_name(target.name + ".part")
        _Download(url, part, md5, size, progress or (lambda *_: None)).complete(attempts, pause)
        part.replace(target)
    return target


def _has_md5(target: Path, md5: str) -> bool:
    return target.is_file() and file_digest(target, "md5") == md5


@dataclass(frozen=True)
class _Download:
    """A file on its way: ``part`` is what has come of it."""

    url: str
    part: Path
    md5: str
    size: int | None
    progress: Progress

    @property
    def have(self) -> int:
        return self.part.stat().st_size if self.part.is_file() else 0

    def complete(self, attempts: int, pause: float) -> None:
        """Download until ``part`` is whole, resuming after cuts; other content is removed."""
        if self.size is not None and self.have >= self.size and self._whole_or_removed():
            return
        for attempt in range(1, attempts + 1):
            try:
                self._request_rest()
                break
            except _CutError as cut:
                if attempt == attempts:
                    raise DataError(self._cut_message(cut)) from cut
                wait = pause * 2 ** (attempt - 1)
                log.warning("%s: %s; trying again in %.0f s", self.url, cut, wait)
                time.sleep(wait)
        found = file_digest(self.part, "md5")
        if found != self.md5:
            self.part.unlink()
            raise DataError(
                f"what came from {self.url} has md5 {found}, expected is {self.md5}: "
                "it was removed. Run it again to start over, or check the address"
            )

    def _whole_or_removed(self) -> bool:
        if file_digest(self.part, "md5") == self.md5:
            return True
        log.warning("%s is no part of %s: starting over", self.part, self.url)
        self.part.unlink()
        return False

    def _cut_message(self, cut: _CutError) -> str:
        of = f" of {self.size:,}" if self.size is not None else ""
        kept = f"they are kept in {self.part}, and running it again resumes from there"
        came = f"{self.have:,}{of} bytes have come; {kept}" if self.have else "Nothing has come"
        return f"the download of {self.url} was cut off: {cut}. {came}"

    def _request_rest(self) -> None:
        """Make one request for what is missing and append what comes to ``part``."""
        response = _answer(self.url, self.have)
        if response is None:
            # Nothing lies beyond what we have: it is all there, or it is something else.
            if self._whole_or_removed():
                return
            response = _answer(self.url, 0)
        if response is not None:
            with response:
                self._save(response)

    def _save(self, response: HTTPResponse) -> None:
        resumed = response.status == 206
        begun_at = response.headers.get("Content-Range", "")  # as in "bytes 100-199/200"
        if resumed and not begun_at.startswith(f"bytes {self.have}-"):
            self.part.unlink(missing_ok=True)
            raise _CutError("the server sent another range than asked for")
        done = self.have if resumed else 0
        total = self.size if response.length is None else done + response.length
        # Unbuffered, so that what has come is in the file even if this process is killed.
        with self.part.open("ab" if resumed else "wb", buffering=0) as file:
            self.progress(done, total)
            for block in _blocks(response):
                file.write(block)
                done += len(block)
                self.progress(done, total)
            os.fsync(file.fileno())
        if total is not None and done < total:
            raise _CutError(f"the connection ended after {done:,} of {total:,} bytes")


def _answer(url: str, have: int) -> HTTPResponse | None:
    """Ask for all from byte ``have`` on; None where the server has no such bytes (416)."""
    request = Request(url, headers={"User-Agent": "polarbear"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response: HTTPResponse = urlopen(request, timeout=TIMEOUT)
    except HTTPError as error:
        error.close()
        if error.code == 416 and have:
            return None
        told = f"the server answered {error.code} {error.reason}"
        if error.code == 429 or error.code >= 500:
            raise _CutError(told) from error
        raise DataError(f"cannot fetch {url}: {told}") from error
    except (OSError, HTTPException) as error:
        raise _CutError(f"no connection ({error})") from error
    return response


def _blocks(response: HTTPResponse) -> Iterator[bytes]:
    try:
        while block := response.read1(BLOCK):
            yield block
    except (OSError, HTTPException) as error:
        raise _CutError(f"the connection broke ({error!r})") from error


def fetch_cifar100(
    root: str | Path,
    url: str = CIFAR100_URL,
    *,
    md5: str = CIFAR100_MD5,
    size: int | None = CIFAR100_SIZE,
    files: Mapping[str, OfficialFile] = OFFICIAL,
    progress: Progress | None = None,
    attempts: int = 5,
    pause: float = 1.0,
) -> Path:
    """Return ``root/cifar-100-python`` with the verified official files, downloaded if need be.

    ``files`` says what the archive must hold; every other member is left alone.
    """
    folder = Path(root) / FOLDER
    if _complete(folder, files):
        return folder
    with alone(folder, wait=True):
        if _complete(folder, files):
            return folder
        archive = Path(root) / f"{FOLDER}.tar.gz"
        found = archive.exists()
        try:
            fetch(
                url, archive, md5=md5, size=size, progress=progress, attempts=attempts, pause=pause
            )
        except DataError as error:
            raise DataError(
                f"{error}. By hand: download {CIFAR100_URL} elsewhere, save it as {archive} and "
                "run this again; or bring the data in any form that is read: "
                f"{places(archive.parent)}"
            ) from error
        _unpack(archive, folder, files)
        if not found:
            archive.unlink()
    return folder


def _complete(folder: Path, files: Mapping[str, OfficialFile]) -> bool:
    with suppress(DataError):
        check_files(folder, files)
        return True
    return False


def _unpack(archive: Path, folder: Path, files: Mapping[str, OfficialFile]) -> None:
    """Bring the files into ``folder`` only once all of them are out and verified."""
    with TemporaryDirectory(prefix=f".{FOLDER}-", dir=folder.parent) as temporary:
        fresh = Path(temporary) / FOLDER
        fresh.mkdir()
        with naming(archive, "an archive"):  # tarfile raises almost anything
            _extract(archive, fresh, files)
        try:
            check_files(fresh, files)
        except DataError as error:
            raise DataError(f"{archive} does not hold the official {', '.join(files)}") from error
        try:
            fresh.rename(folder)
        except OSError:
            # A folder with damaged files is there: its other files stay, these are replaced.
            for file in fresh.iterdir():
                file.replace(folder / file.name)


def _extract(archive: Path, fresh: Path, files: Mapping[str, OfficialFile]) -> None:
    # As a stream, once through: going back for a member would decompress all before it again.
    with tarfile.open(archive, "r|gz") as tar:
        for info in tar:
            name = info.name.removeprefix(f"{FOLDER}/")
            if name not in files or not info.isreg() or info.size != files[name].size:
                continue
            if source := tar.extractfile(info):
                with source:
                    write_whole(fresh / name, partial(copyfileobj, source, length=BLOCK))
