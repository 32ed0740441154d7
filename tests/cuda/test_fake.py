"""The faked device behaves as a GPU does, wherever the other tests rely on it."""

import threading

import pytest
import torch
import torch.nn.functional as F
from torch.utils._device import _device_constructors

from tests.cuda.devices import MIB, OUT_OF_MEMORY, SEGMENT, Cuda
from tests.cuda.fake import fake_cuda


def test_a_tensor_is_where_it_was_put_and_comes_back_with_its_values(cuda: Cuda) -> None:
    moved = torch.arange(6.0).to("cuda:1")
    assert (moved.is_cuda, moved.device, moved.tolist()) == (True, torch.device("cuda:1"), [0, 1, 2, 3, 4, 5])
    assert (moved.view(2, 3)[:, 1:] * 2).cpu().tolist() == [[2.0, 4.0], [8.0, 10.0]]
    made = [torch.zeros(2, device="cuda"), torch.tensor([1], device="cuda"), torch.ones(2).cuda(), moved.to("cuda")]
    assert {tensor.device for tensor in made} == {torch.device("cuda:0")}
    assert not moved.cpu().is_cuda


def test_the_current_device_is_each_threads_own(cuda: Cuda) -> None:
    torch.cuda.set_device(1)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.zeros(1, device="cuda").device))
    thread.start()
    thread.join()
    assert (torch.zeros(1, device="cuda").device, seen) == (torch.device("cuda:1"), [torch.device("cuda:0")])
    with torch.cuda.device(0):
        assert torch.cuda.current_device() == 0
    assert torch.cuda.current_device() == 1


@pytest.mark.parametrize("other", ["cuda:1", "cpu"])
def test_tensors_of_two_devices_do_not_meet(cuda: Cuda, other: str) -> None:
    here, there = torch.ones(2, device="cuda:0"), torch.ones(2, device=other)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device, but found at least two"):
        here + there
    with pytest.raises(RuntimeError, match="same device"):
        F.embedding(torch.tensor([0], device="cuda:0"), torch.ones(2, 2, device=other))
    assert (here + torch.tensor(1.0)).tolist() == [2.0, 2.0], "a number on the CPU may meet anything"


def test_memory_is_counted_while_it_lives_and_kept_until_the_cache_is_emptied(cuda: Cuda) -> None:
    tensor = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda:1")
    view = tensor[5:]
    assert torch.cuda.memory_allocated(1) == 3 * MIB
    assert torch.cuda.mem_get_info(1) == (8192 * MIB - 2 * SEGMENT, 8192 * MIB)
    del tensor
    assert torch.cuda.memory_allocated(1) == 3 * MIB, "a view keeps its storage"
    del view
    assert (torch.cuda.memory_allocated(1), torch.cuda.memory_reserved(1)) == (0, 2 * SEGMENT)
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved(1) == 0
    assert (torch.cuda.max_memory_allocated(1), torch.cuda.max_memory_reserved(1)) == (3 * MIB, 2 * SEGMENT)
    torch.cuda.reset_peak_memory_stats(1)
    assert torch.cuda.max_memory_allocated(1) == torch.cuda.memory_allocated(0) == 0


def test_what_does_not_fit_is_out_of_memory_and_costs_nothing(cuda: Cuda) -> None:
    cuda.devices[0].others = 8100 * MIB
    kept = torch.empty(90 * MIB, dtype=torch.uint8, device="cuda")
    with pytest.raises(torch.cuda.OutOfMemoryError):
        torch.empty(4 * MIB, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_allocated() == kept.nbytes


@pytest.mark.parametrize("name", OUT_OF_MEMORY)
def test_an_allocation_fails_when_and_under_the_name_that_it_was_told(cuda: Cuda, name: str) -> None:
    cuda.devices[0].refuse(above=MIB, times=2, name=name)
    torch.empty(MIB, dtype=torch.uint8, device="cuda")
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"out of memory|ALLOC_FAILED") as caught:
            torch.empty(2 * MIB, dtype=torch.uint8, device="cuda")
        assert type(caught.value).__name__ == (name if name != "cuBLAS" else "RuntimeError")
    torch.empty(2 * MIB, dtype=torch.uint8, device="cuda")


def test_each_device_has_a_random_state_that_seeding_reaches(cuda: Cuda) -> None:
    torch.manual_seed(3)
    assert cuda.seeded_all == 1
    state = torch.cuda.get_rng_state(0)
    first = torch.rand(3, device="cuda")
    assert not torch.equal(torch.cuda.get_rng_state(0), state)
    torch.cuda.set_rng_state(state, 0)
    assert torch.equal(torch.rand(3, device="cuda"), first)
    before = torch.cuda.get_rng_state(0), torch.get_rng_state()
    own = torch.Generator("cuda").manual_seed(3)
    torch.empty(3, device="cuda").exponential_(generator=own)
    assert torch.equal(torch.cuda.get_rng_state(0), before[0])
    assert torch.equal(torch.get_rng_state(), before[1])
    with torch.random.fork_rng(["cuda"]):
        torch.rand(3, device="cuda")
    assert torch.equal(torch.cuda.get_rng_state(0), before[0])
    with pytest.raises(RuntimeError, match="generator"):
        torch.empty(3, device="cuda").exponential_(generator=torch.Generator())


def test_waiting_for_the_device_is_counted(cuda: Cuda) -> None:
    tensor = torch.ones(2, device="cuda")
    tensor + 1
    assert cuda.synchronisations == 0
    torch.cuda.synchronize()
    tensor.sum().item()
    tensor.cpu()
    assert cuda.synchronisations == 3


def test_a_module_moves_there_and_back(cuda: Cuda) -> None:
    module = torch.nn.Linear(2, 2, bias=False)
    expected = module.weight.tolist()
    for device in ("cuda:1", "cuda:0", "cpu"):
        module.to(device)
        assert (module.weight.device, module.weight.tolist()) == (torch.device(device), expected)
    with torch.no_grad():
        assert module.to("cuda")(torch.ones(1, 2, device="cuda")).tolist()[0] == pytest.approx(list(map(sum, expected)))
    with pytest.raises(NotImplementedError, match="no backward pass"):
        module(torch.ones(1, 2, device="cuda"))
    del module
    assert torch.cuda.memory_allocated(0) == torch.cuda.memory_allocated(1) == 0


def test_a_default_device_holds_inside_and_afterwards() -> None:
    """Under torch.device("meta") models are loaded; torch remembers which functions take a device."""
    _device_constructors.cache_clear()
    with fake_cuda(), torch.device("meta"):
        assert torch.tensor([1]).device.type == "meta"
    with torch.device("meta"):
        assert torch.tensor([1]).device.type == "meta"


def test_without_it_torch_has_no_gpu_as_before() -> None:
    assert not torch.cuda.is_available()
    assert torch.Generator.__module__ == "torch._C"
