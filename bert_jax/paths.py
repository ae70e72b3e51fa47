"""What the flags of the commands name: files to read, and places to write to."""

from __future__ import annotations

import os
import sys

from etils import epath


def to_read(name: str, flag: str) -> epath.Path:
    """Returns the path of an input file; "-" is stdin.

    Raises:
      ValueError: there is no such file.
    """
    if name == "-":
        return epath.Path("/dev/stdin")
    path = epath.Path(name).expanduser()
    if not path.exists() or path.is_dir():
        raise ValueError(f"--{flag}={name}: there is no such file")
    return path


def check_to_write(name: str, flag: str = "output", **inputs: str | None) -> None:
    """Makes sure that lines can be written there; "-" is stdout.

    Args:
      name: the file.
      flag: that names it.
      **inputs: the files that are read, by their flags, those that are given: none may be it.

    Raises:
      ValueError: as `to_write`, and where it is one of the inputs.
    """
    if name == "-":
        return
    path = to_write(name, flag)
    for other, given in inputs.items():
        if given and "://" not in f"{given}{name}" and os.path.exists(path):
            source = os.path.expanduser(given)
            if os.path.exists(source) and os.path.samefile(source, path):
                raise ValueError(f"--{flag}={name} is --{other}, which it would replace: name another file")


def to_write(name: str, flag: str = "output", ends: str = "") -> epath.Path:
    """Returns the path of a file that is to be written.

    Args:
      name: the file.
      flag: that names it.
      ends: what its name must end with.

    Raises:
      ValueError: none can be there.
    """
    path = epath.Path(name).expanduser()
    if name == "-":
        raise ValueError(f"--{flag}=-: it cannot go to stdout: name a file")
    if path.is_dir():
        raise ValueError(f"--{flag}={name} is a directory: name a file")
    if "://" not in name and not path.parent.is_dir():
        raise ValueError(f"--{flag}={name}: its directory does not exist")
    if not name.lower().endswith(ends):
        raise ValueError(f"--{flag}={name}: its name must end with {ends}, so that no other file is replaced")
    return path


def refuse_links_out(folder: epath.Path) -> None:
    """Makes sure that no symbolic link in a model's directory leads out of it.

    A directory that was got from elsewhere could have any file of this machine read, and copied by what is
    written from it. In Hugging Face's cache, where files are links from snapshots/X to blobs/, all of the
    model's part of it is inside.

    Raises:
      ValueError: one does.
    """
    if "://" in os.fspath(folder):
        return  # no such links there
    own = os.path.realpath(folder)
    if os.path.basename(os.path.dirname(own)) == "snapshots":
        own = os.path.dirname(os.path.dirname(own))
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if os.path.islink(path) and not os.path.realpath(path).startswith(own + os.sep):
            raise ValueError(f"{path} is a link out of the directory: put the file itself there")


def say(summary: str, written_to: str | None) -> None:
    """Prints a summary on stdout, or, where the answers themselves go there, on stderr."""
    print(summary, file=sys.stderr if written_to == "-" else sys.stdout, flush=True)
