"""Whether a file lies on a network disk, where SQLite's WAL does not work: its index is shared memory (sqlite.org/wal.html, "Overview")."""

from __future__ import annotations

from pathlib import Path

NETWORK = frozenset(
    ("9p", "afs", "beegfs", "ceph", "cifs", "fuse.cephfs", "fuse.gcsfuse", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "pvfs2", "smb3", "smbfs", "wekafs")
)  # fmt: skip
MOUNTS = Path("/proc/self/mounts")


def network_disk(path: Path, mounts: Path = MOUNTS) -> str | None:
    """The type of the network file system that holds `path`; None on a local disk, or where the system does not say (not Linux)."""
    try:
        lines = mounts.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return None
    folder = path.resolve()
    kinds = {_unescape(fields[1]): fields[2] for line in lines if len(fields := line.split()) > 2}
    for parent in (folder, *folder.parents):
        if (kind := kinds.get(str(parent))) is not None:
            return kind if kind in NETWORK else None
    return None


def _unescape(text: str) -> str:
    for code, char in ((r"\040", " "), (r"\011", "\t"), (r"\134", "\\")):
        text = text.replace(code, char)
    return text
