"""horner.nn with two processes: DDP and FSDP2 take the steps of one process."""

import copy
import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

import horner

PATTERN = ["gla:heads=2", "gated_deltanet:heads=2,expand_v=1"]


def model() -> horner.nn.Model:
    return horner.nn.Model(pattern=PATTERN, layers=2, D=16, vocabulary=11, seed=2)


def batch() -> Tensor:
    return torch.randint(11, (4, 8), generator=torch.Generator().manual_seed(1))


def train(wrapped: torch.nn.Module, tokens: Tensor) -> None:
    optimiser = torch.optim.SGD(wrapped.parameters(), lr=0.5)
    for _ in range(3):
        logits = wrapped(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def process(rank: int, kind: str, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    own = batch()[2 * rank : 2 * rank + 2]
    net = model()
    if kind == "ddp":
        wrapped = torch.nn.parallel.DistributedDataParallel(net)
        train(wrapped, own)
        weights = net.state_dict()
    else:
        from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

        mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
        for layer in net.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(net, mesh=mesh)
        assert all(p.to_local().numel() < p.numel() for p in net.parameters() if p.dim() == 2)
        register_fsdp_forward_method(net, "loss")
        with torch.no_grad():
            torch.testing.assert_close(net.loss(own[:, :-1], own[:, 1:]), model().loss(own[:, :-1], own[:, 1:]))
        net.reshard()  # an optimiser takes sharded tensors
        layer = horner.nn.GLA(16, heads=2, seed=1)
        fully_shard(layer, mesh=mesh)  # gathers the tensors for one token, too
        x = torch.ones(2, 16)
        torch.testing.assert_close(layer.step(x, [])[0], horner.nn.GLA(16, heads=2, seed=1).step(x, [])[0])
        train(net, own)
        weights = {name: x.full_tensor() for name, x in net.state_dict().items()}
    if rank == 0:
        torch.save(weights, f"{folder}/weights.pt")
    dist.destroy_process_group()


def process_from_meta(rank: int, folder: str) -> None:
    """Sharded before it has weights; then drawn, saved and trained."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    torch.set_num_threads(1)
    torch.manual_seed(rank)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
    with torch.device("meta"):
        net = model()
    mixed = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    for layer in (*net.layers, net):
        fully_shard(layer, mesh=mesh, mp_policy=mixed)
    net.to_empty(device="cpu")
    net.reset_parameters()  # each process would draw another seed
    horner.save(net, f"{folder}/drawn")
    assert torch.equal(horner.load(f"{folder}/drawn").head_weight, net.head_weight.full_tensor())
    net.reset_parameters(seed=2)
    horner.save(net, f"{folder}/seeded")
    assert net(batch()).dtype == torch.bfloat16
    train(net, batch())
    dist.destroy_process_group()


def test_a_sharded_model_from_the_meta_device_is_drawn_and_saved(tmp_path: Path) -> None:
    mp.spawn(process_from_meta, (str(tmp_path),), nprocs=2)
    for name, x in model().state_dict().items():
        assert torch.equal(horner.load(tmp_path / "seeded").state_dict()[name], x), name
    assert not torch.equal(horner.load(tmp_path / "drawn").head_weight, model().head_weight)


@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_two_processes_train_as_one(kind: str, tmp_path: Path) -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    mp.spawn(process, (kind, str(tmp_path)), nprocs=2)
    alone = model()
    before = copy.deepcopy(alone.state_dict())
    train(alone, batch())
    after = torch.load(tmp_path / "weights.pt")
    assert after.keys() == before.keys()
    for name, x in alone.state_dict().items():
        torch.testing.assert_close(after[name], x, rtol=1e-4, atol=1e-6)
    assert not torch.equal(after["head_weight"], before["head_weight"])
