"""`agent doctor` on a screen."""

from rich.console import Console

from kernelwright.agent.viewing.show.machine import machine_view
from kernelwright.tools.hardware.machine_info import Layer, read_machine


def test_an_isolation_layer_that_is_missing_says_so_without_colours():
    machine = read_machine().with_(
        layers=(Layer(name="seccomp", available=True), Layer(name="x", available=False))
    )
    console = Console(width=100, no_color=True)
    with console.capture() as captured:
        console.print(machine_view(machine, ()))
    assert "seccomp, x (missing)" in captured.get()
