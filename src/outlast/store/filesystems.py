"""Whether a store may live where it is asked to: SQLite's log needs memory shared by all users."""

import os
import warnings

from outlast.errors import StoreError

# fmt: off
_LOCAL = frozenset({
    "apfs", "bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "fuseblk", "hfs",
    "hfsplus", "jfs", "msdos", "nilfs2", "ntfs", "ntfs3", "overlay", "overlayfs", "ramfs",
    "reiserfs", "rootfs", "squashfs", "tmpfs", "ufs", "vfat", "xfs", "zfs",
})
_SHARED = frozenset({
    "9p", "acfs", "afpfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "fuse.cephfs",
    "fuse.davfs", "fuse.gcsfuse", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs",
    "fuse.vmhgfs-fuse", "gfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4",
    "ocfs2", "orangefs", "prl_fs", "pvfs2", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs",
    "webdav",
})
# fmt: on


def filesystem_of(path: str) -> str | None:
    """Type of the file system that holds an absolute path, such as `ext4`; None if not known."""
    import psutil

    found, longest = None, -1
    for partition in psutil.disk_partitions(all=True):
        root = partition.mountpoint.rstrip(os.sep) + os.sep
        # A later mount at the same place hides the earlier one.
        if (path + os.sep).startswith(root) and len(root) >= longest:
            found, longest = partition.fstype.lower(), len(root)
    return found or None


def check_filesystem(path: str, allowed: str | None = None) -> None:
    """Refuse a store on a network or shared file system; warn of a type that nobody knows.

    Args:
        path: absolute path of the store.
        allowed: a type for which the user takes the risk.

    Raises:
        StoreError: the type is known not to share memory between machines.
    """
    kind = filesystem_of(path)
    if kind is None or kind in _LOCAL or kind == allowed:
        return
    if kind in _SHARED:
        raise StoreError(
            f"store {path} is on a {kind} file system, where SQLite may lose data: put it on a "
            f"local disk (at your own risk: add ?unsafe_filesystem={kind} to the store's URL)",
            "io",
        )
    warnings.warn(
        f"outlast does not know whether SQLite is safe on a {kind} file system; if it is a local "
        f"disk, add ?unsafe_filesystem={kind} to the store's URL",
        stacklevel=2,
    )
