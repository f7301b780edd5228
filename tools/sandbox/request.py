"""Request to a zygote for starting a candidate's process: plain data, sent as JSON beside three
descriptors.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from kernelwright.tools.sandbox.limits import Limits
from kernelwright.tools.sandbox.messages import Message


@dataclass(frozen=True)
class ProcessSettings:
    """Settings of a candidate's process."""

    scratch: str
    """Only folder writable for the candidate."""
    environment: dict[str, str]
    limits: Limits = field(default_factory=Limits)
    gpu: str = ""
    """Value of the variable CUDA_VISIBLE_DEVICES."""
    pid_namespace: bool = True
    private_scratch: bool = False
    """Whether the scratch folder is a file system in memory, bounded in bytes and files,
    invisible from outside, which ends with the process.
    """
    handed_out: tuple[str, ...] = ()
    """Names (without folders) of files which are copied out of a private scratch folder, if
    present, after the process ended by itself.
    """
    memory_files: bool = True
    """Whether memfd_create is open to the candidate."""
    groups: tuple[str, ...] = ()
    """Folders of the control groups which the process enters."""

    def as_message(self) -> Message:
        """The request as JSON values."""
        return asdict(self)

    @staticmethod
    def from_message(message: Message) -> ProcessSettings:
        """Returns the request written by `as_message`."""
        fields = {"limits": Limits(**message["limits"]), "groups": tuple(message["groups"])}
        return ProcessSettings(**message | fields | {"handed_out": tuple(message["handed_out"])})
