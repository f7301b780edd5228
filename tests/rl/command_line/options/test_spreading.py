import pytest

from kernelwright.errors import InputError
from kernelwright.rl.command_line.options.spreading import VISIBLE_DEVICES_VARIABLE, spread

ASKED = {
    "device": "cuda:0",
    "judge": "interpreted",
    "sampling_device": None,
    "ray": None,
    "seed": 3,
}


def test_one_gpu_is_left_as_it_was_asked_for(monkeypatch):
    monkeypatch.delenv(VISIBLE_DEVICES_VARIABLE, raising=False)
    for judge in ("interpreted", "compiled", "cuda:0"):
        fields = spread({**ASKED, "judge": judge}, str)
        assert fields == {"device": "cuda:0", "judge": judge, "ray": None, "seed": 3}


def test_each_process_of_a_training_on_three_gpus_is_shown_its_own(monkeypatch):
    import os

    monkeypatch.setenv(VISIBLE_DEVICES_VARIABLE, "4,5,7")
    fields = spread(
        {**ASKED, "device": "cuda:1", "sampling_device": "cuda:0", "judge": "cuda:2, cuda:0"}, str
    )
    assert fields == {
        "device": "cuda:0", "judge": "cuda:0", "judge_gpus": ("7", "4"), "sampling_gpu": "4", "ray": None,
        "seed": 3,
    }  # fmt: skip
    assert os.environ[VISIBLE_DEVICES_VARIABLE] == "5"


def test_a_training_without_a_gpu_may_be_judged_on_several(monkeypatch):
    import os

    monkeypatch.setenv(VISIBLE_DEVICES_VARIABLE, "0,1")
    assert spread({**ASKED, "device": "cpu", "judge": "cuda:0,cuda:1"}, str)["judge_gpus"] == (
        "0",
        "1",
    )
    assert os.environ[VISIBLE_DEVICES_VARIABLE] == "0,1"
    with pytest.raises(InputError, match="needs the training on a GPU"):
        spread({**ASKED, "device": "cpu", "sampling_device": "cuda:1"}, str)


def test_each_of_several_training_processes_has_a_gpu_already(monkeypatch):
    import os

    monkeypatch.setenv(VISIBLE_DEVICES_VARIABLE, "0,1,2,3")
    fields = spread({**ASKED, "judge": "cuda:2,cuda:3"}, str, processes=2)
    assert fields["judge_gpus"] == ("2", "3")
    assert fields["device"] == "cuda:0"
    assert os.environ[VISIBLE_DEVICES_VARIABLE] == "0,1,2,3"
    with pytest.raises(InputError, match="start a vLLM server on that GPU"):
        spread({**ASKED, "sampling_device": "cuda:1"}, str, processes=2)


def test_a_cluster_gives_out_its_gpus_itself():
    fields = spread({**ASKED, "judge": "cuda:0", "ray": "auto"}, str)
    assert fields == {"device": "cuda:0", "judge": "cuda:0", "ray": "auto", "seed": 3}
    for more in ({"sampling_device": "cuda:1"}, {"judge": "cuda:0,cuda:1"}):
        with pytest.raises(InputError, match="the cluster assigns its GPUs"):
            spread({**ASKED, "ray": "auto", **more}, str)
