"""Kafka and an S3 server for containers, from what this machine has: nothing is fetched."""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from drivers.containers import Containers
from drivers.own_process import printed
from servers.s3_server import versitygw

from acktrail_embedded.kafka.installation import install

__all__ = ["S3_IMAGE", "add_kafka", "add_s3"]

S3_IMAGE: Final = "localhost/s3"
_USER: Final = 1001
"""Whom the images run as."""


def add_s3(podman: Containers) -> str:
    """An image of the S3 server that other tests run, for a machine that can pull none; gives its name."""
    program = versitygw()
    words = [word for line in printed("ldd", program).splitlines() for word in line.split() if word.startswith("/")]
    entries = {"usr/local/bin/versitygw": program, **{word[1:]: Path(word).resolve() for word in words}}
    file = _archive(podman.folder / "s3.tar", entries, owner=0)
    podman.done("import", "--change", 'ENTRYPOINT ["/usr/local/bin/versitygw"]', file, S3_IMAGE)
    return S3_IMAGE


def add_kafka(podman: Containers, volume: str) -> None:
    """A volume for acktrail's cache that has the default release of Kafka."""
    jars = install().jars
    entries = {f"kafka/{jars.name}/{jar.name}": jar for jar in jars.iterdir()}
    podman.done("volume", "create", volume)
    podman.done("volume", "import", volume, _archive(podman.folder / "cache.tar", entries, owner=_USER))


def _archive(file: Path, entries: Mapping[str, Path], *, owner: int) -> Path:
    """A tar file with these files and their folders."""

    def owned(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = owner
        return info

    with tarfile.open(file, "w") as made:
        for folder in sorted({parent for name in entries for parent in Path(name).parents}):
            info = tarfile.TarInfo(str(folder))
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            made.addfile(owned(info))
        for name, source in entries.items():
            made.add(source, name, filter=owned)
    return file
