"""What the machine says of itself, on whatever machine this runs; on a GPU the driver's own figures."""

import subprocess
import sys

import pytest

from kernelwright.agent.runtime.doctor import Severity, diagnose
from kernelwright.tools.hardware import gpus
from kernelwright.tools.hardware.gpus import Gpu, read_driver, throttle_reasons
from kernelwright.tools.hardware.machine_info import (
    Disk,
    Layer,
    Machine,
    Ncu,
    OfflineTarget,
    read_machine,
)
from kernelwright.tools.hardware.neighbours import neighbours_of
from kernelwright.tools.hardware.peaks import PEAKS, peak_of, peak_of_target
from kernelwright.tools.hardware.targets import TARGETS
from kernelwright.tools.report import Clocks

SMI = """GPU-6f6a3c1e-1111-2222-3333-444455556666, NVIDIA H200, 570.86.15, 143771, 9.0, 1980, 3201, 1980, 3201, 31, 118.42, 0x0000000000000004, 97
GPU-6f6a3c1e-1111-2222-3333-444455557777, NVIDIA L4, 570.86.15, 23034, 8.9, 210, 405, 2040, 6251, 40, [N/A], 0x0000000000000001, 0
"""  # noqa: E501 (a recorded answer)
"""In the form of `nvidia-smi --query-gpu=... --format=csv,noheader,nounits`."""

SOUND = Machine(
    host="here",
    system="Linux",
    cpus=2,
    memory_bytes=24 * 2**30,
    python="3.11.9",
    versions={"torch": "2.13.0", "triton": "3.9.0", "nvidia-ml-py": "13.0"},
    gpus=(
        Gpu(index=0, name="NVIDIA H200", uuid="GPU-1", capability=(9, 0), rates={"fp32": 66.9e12}),
    ),
    driver="570.86.15",
    ncu=Ncu(path="/usr/bin/ncu", permitted=True),
    layers=(Layer(name="landlock", available=True),),
    targets=(OfflineTarget(name="sm_90", available=True),),
    disks=(Disk(path="/tmp", free_bytes=2**40, writable=True),),
)


@pytest.fixture(scope="module")
def machine():
    return read_machine()


def test_the_machine_is_a_frozen_value_that_survives_json(machine):
    assert Machine.model_validate_json(machine.model_dump_json()) == machine
    with pytest.raises(ValueError, match="frozen"):
        machine.host = "elsewhere"


def test_versions_are_read_from_metadata(machine):
    assert machine.versions["torch"].startswith("2.")
    assert machine.versions["triton"].startswith("3.")
    assert machine.environment.triton == machine.versions["triton"]


def test_every_target_can_be_compiled_for_with_the_pinned_triton(machine):
    assert {t.name for t in machine.targets if t.available} == set(TARGETS)


def test_every_isolation_layer_that_is_missing_has_its_reason(machine):
    assert machine.layers
    assert all(layer.reason for layer in machine.layers if not layer.available)


def test_disks_and_memory_are_known(machine):
    assert machine.disks
    assert all(disk.free_bytes > 0 for disk in machine.disks)
    assert machine.cpus >= 1


def test_reading_the_machine_imports_neither_torch_nor_triton():
    code = (
        "import sys; from kernelwright.tools.hardware.machine_info import read_machine; read_machine(); "
        "print({'torch', 'triton'} & "
        "set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_nvidia_smi_is_read_where_nvml_is_not_installed():
    first, second = gpus._parse_smi(SMI)
    assert first["capability"] == (9, 0)
    assert first["memory_bytes"] == 143771 * 2**20
    assert gpus._clocks(first) == Clocks(
        sm_mhz=1980, memory_mhz=3201, temperature=31, power_watts=118.42, throttle=("sw_power_cap",)
    )
    assert second["power_watts"] is None
    assert gpus._clocks(second).throttle == ("gpu_idle",)


def test_only_other_gpus_that_compute_are_neighbours():
    sensors = {told["uuid"]: told for told in gpus._parse_smi(SMI)}
    busy, idle = sensors
    assert neighbours_of(busy, sensors) == ()
    [neighbour] = neighbours_of(idle, sensors)
    assert (neighbour.uuid, neighbour.name, neighbour.busy) == (busy, "NVIDIA H200", 0.97)


def test_a_gpu_known_only_from_nvidia_smi_still_has_its_peaks():
    first, _ = gpus._parse_smi(SMI)
    gpu = gpus._gpu({"index": 0, **gpus._fixed_fields(first)}, first)
    assert gpu.target == "sm_90"
    assert gpu.bytes_per_second == 4.8e12
    assert gpu.rates["bf16"] == 989.4e12


def test_bandwidth_is_read_from_clock_and_bus_where_the_driver_says_both():
    device = {
        "index": 0,
        "name": "NVIDIA H100 80GB HBM3",
        "uuid": "GPU-1",
        "memory_clock_khz": 2619000,
        "bus_bits": 5120,
    }
    assert gpus._gpu(device, {}).bytes_per_second == pytest.approx(3.352e12, rel=1e-3)


def test_throttle_bits_have_names():
    assert throttle_reasons(0x4 | 0x20) == ("sw_power_cap", "sw_thermal_slowdown")
    assert throttle_reasons(0) == ()


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        ("NVIDIA H200", "H200"),
        ("NVIDIA H200 NVL", "H200 NVL"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM5 HBM3"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("NVIDIA A100-SXM4-40GB", "A100 SXM4 40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM4 80GB"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80GB"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA GeForce RTX 4090", "GeForce RTX 4090"),
        ("NVIDIA GeForce RTX 5090", "GeForce RTX 5090"),
        ("NVIDIA B200", "B200"),
        ("AMD Instinct MI300X", "Instinct MI300X"),
    ],
)
def test_a_driver_name_finds_its_data_sheet(name, gpu):
    assert peak_of(name).gpu == gpu


@pytest.mark.parametrize(
    "name", ["Tesla T4", "NVIDIA A10G", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GB200", ""]
)
def test_a_gpu_that_is_not_tabulated_has_no_peaks(name):
    assert peak_of(name) is None


def test_every_target_has_a_tabulated_gpu_and_every_peak_a_source():
    assert all(peak_of_target(target) for target in TARGETS)
    assert {peak.target for peak in PEAKS} <= set(TARGETS)
    assert all(peak.source and peak.rates["fp32"] > 0 for peak in PEAKS)


def test_narrower_formats_are_never_slower():
    for peak in PEAKS:
        order = [peak.rates[name] for name in ("fp32", "tf32", "bf16", "fp8") if name in peak.rates]
        assert order == sorted(order), peak.gpu


def test_a_sound_machine_has_no_trouble():
    assert diagnose(SOUND) == ()


@pytest.mark.parametrize(
    ("changes", "severity", "says"),
    [
        (
            {"versions": {"triton": "3.9.0", "nvidia-ml-py": "13"}},
            Severity.ERROR,
            "torch is not installed",
        ),
        (
            {"versions": {"torch": "2.13.0", "triton": "3.2.0", "nvidia-ml-py": "13"}},
            Severity.WARNING,
            "triton 3.2.0 is outside",
        ),
        (
            {"versions": {"torch": "2.13.0+cpu", "triton": "3.9.0", "nvidia-ml-py": "13"}},
            Severity.WARNING,
            "built without CUDA",
        ),
        ({"gpus": (), "driver": None}, Severity.NOTE, "no GPU"),
        ({"gpus": ()}, Severity.WARNING, "CUDA finds no GPU"),
        ({"ncu": Ncu()}, Severity.NOTE, "ncu is not installed"),
        ({"ncu": Ncu(path="/usr/bin/ncu", permitted=False)}, Severity.NOTE, "only administrators"),
        (
            {"layers": (Layer(name="landlock", available=False, reason="not in this kernel"),)},
            Severity.WARNING,
            "landlock",
        ),
        (
            {"targets": (OfflineTarget(name="sm_100", available=False, reason="no ptxas"),)},
            Severity.WARNING,
            "sm_100",
        ),
        (
            {"disks": (Disk(path="/tmp", free_bytes=2**20, writable=True),)},
            Severity.WARNING,
            "/tmp has 0.0 GiB",
        ),
        (
            {"disks": (Disk(path="/tmp", free_bytes=2**40, writable=False),)},
            Severity.WARNING,
            "cannot be written",
        ),
        ({"memory_bytes": 2**30}, Severity.WARNING, "1.0 GiB of memory"),
    ],
)
def test_each_trouble_is_named_with_its_fix(changes, severity, says):
    (trouble,) = diagnose(SOUND.with_(**changes))
    assert trouble.severity is severity
    assert says in trouble.what
    assert trouble.fix
    assert "\n" not in trouble.fix


def test_the_gravest_trouble_comes_first():
    weak = SOUND.with_(versions={}, gpus=(), driver=None, memory_bytes=2**30)
    severities = [trouble.severity for trouble in diagnose(weak)]
    assert severities == sorted(severities, key=list(Severity).index)


@pytest.mark.gpu
def test_the_gpu_agrees_with_torch():
    import torch

    for gpu in read_driver().gpus:
        seen = torch.cuda.get_device_properties(gpu.index)
        assert gpu.name == seen.name
        assert gpu.capability == (seen.major, seen.minor)
        assert gpu.multiprocessors == seen.multi_processor_count
        assert gpu.l2_bytes == seen.L2_cache_size
        assert gpu.memory_bytes == pytest.approx(seen.total_memory, rel=0.02)


@pytest.mark.gpu
def test_the_gpus_clocks_and_bandwidth_are_read():
    gpu = read_driver().gpus[0]
    assert gpu.clocks.sm_mhz > 0
    assert gpu.bytes_per_second > 1e11
    assert gpus.read_clocks(gpu.uuid).temperature > 0
