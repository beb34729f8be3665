"""What a machine has wrong, as one line: folders, disks, variables, broken packages. All else that acktrail did not
foresee is a defect of its own."""

from __future__ import annotations

import errno
from typing import Final

from acktrail.errors import AcktrailError, ConfigurationError, RetryableError

_HINTS: Final = {
    errno.ENOENT: "name a file or folder that is there",
    errno.ENOTDIR: "name a folder whose parents are folders",
    errno.EISDIR: "name a file, not a folder",
    errno.EACCES: "give this user the right to it, or name another",
    errno.EPERM: "give this user the right to it, or name another",
    errno.EROFS: "name a place that can be written",
    errno.EEXIST: "name another one, or remove what is there",
    errno.ENAMETOOLONG: "give it a shorter name",
    errno.ELOOP: "its links lead in a circle",
    errno.EIO: "look at the disk and its mount",
    errno.ESTALE: "look at the disk and its mount",
    errno.ENOTCONN: "look at the disk and its mount",
    errno.ENXIO: "it is no plain file",
}
_FULL: Final = {
    errno.ENOSPC: "make room, then run again",
    errno.EDQUOT: "make room within the quota, then run again",
    errno.EFBIG: "raise the limit of this shell: ulimit -f unlimited",
    errno.EMFILE: "raise the limit of this shell: ulimit -n 4096",
    errno.ENFILE: "this machine has too many files open",
    errno.ENOMEM: "free memory, then run again",
    errno.EAGAIN: "this machine cannot start another process or thread: see ulimit -u",
}
_NO_HOME: Final = "Could not determine home directory"
_NO_TEMPORARY: Final = "No usable temporary directory"


def machine_fault(error: BaseException) -> AcktrailError | None:
    """The error to show for `error` where the machine is what is wrong; None: it is none of its faults."""
    text = str(error)
    if _NO_TEMPORARY in text:
        return ConfigurationError("there is no writable temporary folder", hint="set TMPDIR to one")
    if _NO_HOME in text:
        return ConfigurationError("this user has no home folder", hint="set HOME")
    if isinstance(error, MemoryError):
        return RetryableError("memory ran out", hint="give the process more, or work on fewer records at a time")
    if isinstance(error, ImportError) and not isinstance(error, ModuleNotFoundError):
        package = (error.name or "a package").partition(".")[0]
        if package.startswith("acktrail"):
            return None
        hint = "install acktrail with its packages in an environment of its own"
        return ConfigurationError(f"{package} cannot be loaded: {text}", hint=hint)
    if not isinstance(error, OSError) or error.errno is None:
        return None
    what = f"{error.filename}: {error.strerror}" if error.filename else f"{error.strerror}"
    if error.errno in _FULL:
        return RetryableError(what, hint=_FULL[error.errno])
    return ConfigurationError(what, hint=_HINTS[error.errno]) if error.errno in _HINTS else None
