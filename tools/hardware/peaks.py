"""Dense peak rates of GPUs by number format, as published by their makers.

Sparse figures are halved; boost clocks are the maker's. Values which a driver reports (memory
clock times bus width) are read instead: see machine_info.
"""

from __future__ import annotations

from kernelwright.tools.report import Value

TERA = 10**12
GIGA = 10**9


class Peak(Value):
    """Published peaks of a GPU."""

    gpu: str
    """The name in its maker's data sheet."""
    target: str
    """Compile target, such as sm_90 or gfx942."""
    bytes_per_second: float
    rates: dict[str, float]
    """Operations a second, dense, by format: fp64, fp64_tensor, fp32, tf32, fp16, bf16, fp8,
    int8, fp4.

    Half precision accumulates in fp32.
    """
    source: str


def _peak(gpu: str, target: str, gigabytes: float, source: str, **tera: float) -> Peak:
    rates = {name: rate * TERA for name, rate in tera.items()}
    return Peak(
        gpu=gpu, target=target, bytes_per_second=gigabytes * GIGA, rates=rates, source=source
    )


_A100 = "NVIDIA A100 Tensor Core GPU data sheet, 2021"
_AMPERE = "NVIDIA Ampere GA102 GPU Architecture white paper, 2021, appendix A"
_ADA = "NVIDIA Ada GPU Architecture white paper, 2023, appendix A"
_HOPPER = "NVIDIA H100 Tensor Core GPU data sheet, 2024"
_H200 = "NVIDIA H200 Tensor Core GPU data sheet, 2024"
_HGX = "NVIDIA HGX B200 data sheet, 2025 (an eighth of the board)"
_RTX = "NVIDIA RTX Blackwell GPU Architecture white paper, 2025, appendix A"
_CDNA3 = "AMD Instinct MI300X data sheet, 2023"

_A100_RATES = {
    "fp64": 9.7,
    "fp64_tensor": 19.5,
    "fp32": 19.5,
    "tf32": 156,
    "fp16": 312,
    "bf16": 312,
    "int8": 624,
}
_H100_RATES = {
    "fp64": 33.5,
    "fp64_tensor": 66.9,
    "fp32": 66.9,
    "tf32": 494.7,
    "fp16": 989.4,
    "bf16": 989.4,
    "fp8": 1978.9,
    "int8": 1978.9,
}
_NVL_RATES = {
    "fp64": 30,
    "fp64_tensor": 60,
    "fp32": 60,
    "tf32": 417.5,
    "fp16": 835.5,
    "bf16": 835.5,
    "fp8": 1670.5,
    "int8": 1670.5,
}

PEAKS: tuple[Peak, ...] = (
    _peak("A100 SXM4 80GB", "sm_80", 2039, _A100, **_A100_RATES),
    _peak("A100 PCIe 80GB", "sm_80", 1935, _A100, **_A100_RATES),
    _peak("A100 SXM4 40GB", "sm_80", 1555, _A100, **_A100_RATES),
    _peak(
        "A10",
        "sm_86",
        600,
        "NVIDIA A10 data sheet, 2021",
        fp32=31.2,
        tf32=62.5,
        fp16=125,
        bf16=125,
        int8=250,
    ),
    _peak(
        "GeForce RTX 3090", "sm_86", 936, _AMPERE, fp32=35.6, tf32=35.6, fp16=71, bf16=71, int8=284
    ),
    _peak(
        "L4",
        "sm_89",
        300,
        "NVIDIA L4 data sheet, 2023",
        fp32=30.3,
        tf32=60,
        fp16=121,
        bf16=121,
        fp8=242,
        int8=242,
    ),
    _peak(
        "L40S",
        "sm_89",
        864,
        "NVIDIA L40S data sheet, 2023",
        fp32=91.6,
        tf32=183,
        fp16=362,
        bf16=362,
        fp8=733,
        int8=733,
    ),
    _peak(
        "GeForce RTX 4090",
        "sm_89",
        1008,
        _ADA,
        fp32=82.6,
        tf32=82.6,
        fp16=165.2,
        bf16=165.2,
        fp8=330.3,
        int8=660.6,
    ),
    _peak("H200", "sm_90", 4800, _H200, **_H100_RATES),
    _peak("H200 NVL", "sm_90", 4800, _H200, **_NVL_RATES),
    _peak("H100 SXM5 HBM3", "sm_90", 3350, _HOPPER, **_H100_RATES),
    _peak("H100 NVL", "sm_90", 3900, _HOPPER, **_NVL_RATES),
    _peak(
        "H100 PCIe",
        "sm_90",
        2000,
        "NVIDIA H100 Tensor Core GPU data sheet, 2022",
        fp64=25.6,
        fp64_tensor=51.2,
        fp32=51.2,
        tf32=378,
        fp16=756,
        bf16=756,
        fp8=1513,
        int8=1513,
    ),
    _peak(
        "B200",
        "sm_100",
        8000,
        _HGX,
        fp64=37,
        fp64_tensor=37,
        fp32=75,
        tf32=1125,
        fp16=2250,
        bf16=2250,
        fp8=4500,
        int8=4500,
        fp4=9000,
    ),
    _peak(
        "GeForce RTX 5090",
        "sm_120",
        1792,
        _RTX,
        fp32=104.8,
        tf32=104.8,
        fp16=209.5,
        bf16=209.5,
        fp8=419,
        int8=838,
        fp4=1676,
    ),
    _peak(
        "Instinct MI300X",
        "gfx942",
        5300,
        _CDNA3,
        fp64=81.7,
        fp64_tensor=163.4,
        fp32=163.4,
        tf32=653.7,
        fp16=1307.4,
        bf16=1307.4,
        fp8=2614.9,
        int8=2614.9,
    ),
)


def peak_of(name: str) -> Peak | None:
    """Returns the published peaks of the GPU with the driver's name `name` ("NVIDIA H100 80GB
    HBM3"); None if not tabulated.

    The product (A100, L4, 4090) must match; among several entries the entry with the most common
    words wins. Laptop parts share their names with faster desktop parts and are not tabulated.
    """
    words = _words(name)
    fitting = [peak for peak in PEAKS if _model(peak.gpu) in words and "LAPTOP" not in words]
    return max(fitting, key=lambda peak: _likeness(peak, words), default=None)


def peak_of_target(target: str) -> Peak | None:
    """Returns the first tabulated GPU of a compile target, for estimates without a device."""
    return next((peak for peak in PEAKS if peak.target == target), None)


def _words(name: str) -> set[str]:
    return set(name.upper().replace("-", " ").replace("/", " ").split())


def _model(gpu: str) -> str:
    """Returns the word of the chip's product: the first word with a digit."""
    return next(word for word in gpu.upper().split() if any(c.isdigit() for c in word))


def _likeness(peak: Peak, words: set[str]) -> tuple[int, int]:
    own_words = _words(peak.gpu)
    return len(own_words & words), -len(own_words - words)
