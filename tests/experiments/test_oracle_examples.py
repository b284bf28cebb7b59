"""What oracles learn from: labels that are right for whole, partial, faint and fake shortcuts."""

import pytest
import torch

from fastdime.data.phantoms.phantom import Batch, phantom
from fastdime.experiments import oracle_examples as examples
from fastdime.experiments.oracle_examples import oracle_pictures
from fastdime.training.order import generator


@pytest.fixture(scope="module")
def batch() -> Batch:
    return phantom("chest-pacemaker").render(7, range(40), None)


def visible(batch: Batch, x: torch.Tensor) -> torch.Tensor:
    """Share of the true region where the image is nearer to the one with the shortcut."""
    nearer = (x - batch.with_shortcut).abs() < (x - batch.without).abs()
    return (nearer & batch.region).sum((1, 2, 3)) / batch.region.sum((1, 2, 3))


def test_plain_pairs(batch: Batch) -> None:
    made = examples.plain(batch, generator(0, 0))
    assert torch.equal(made.x, torch.cat([batch.with_shortcut, batch.without]))
    assert made.some.tolist() == made.whole.tolist() == [1.0] * 40 + [0.0] * 40


def test_fragments_count_in_part_and_not_as_whole(batch: Batch) -> None:
    made = examples.fragments(batch, generator(0, 1))
    share = visible(batch, made.x)
    assert (share[made.some == 1] >= 0.08).all()
    assert (share[made.some == 0] <= 0.02).all()
    assert (share[made.whole == 1] >= 0.9).all()
    assert (share[made.whole == 0] <= 0.6).all()
    assert ((made.some == 1) & (made.whole == 0)).any()
    outside = ~(batch.x != batch.other)
    assert torch.equal(made.x[outside], batch.x[outside])


def test_faint_ones(batch: Batch) -> None:
    made = examples.faint(batch, generator(0, 2))
    change = (made.x - batch.without).abs().sum((1, 2, 3))
    amount = change / (batch.with_shortcut - batch.without).abs().sum((1, 2, 3))
    assert (amount[made.some == 0] <= 0.121).all()
    assert (amount[made.some == 1] >= 0.499).all()
    assert 5 < int(made.some.sum()) < 35


def test_smudges_are_no_shortcuts(batch: Batch) -> None:
    made = examples.smudged(batch, generator(0, 3))
    with_it = made.some == 1
    assert torch.equal(made.x[with_it], batch.with_shortcut[with_it])
    change = (made.x - batch.without).abs()
    far = torch.nn.functional.max_pool2d(batch.region.float(), 5, 1, 2) == 0
    assert (change * far)[~with_it].max() == 0
    assert change[~with_it].amax((1, 2, 3)).min() > 0


def test_scribbles_change_images_and_not_labels(batch: Batch) -> None:
    made = examples.scribbled(batch, generator(0, 4))
    base = torch.where((made.some == 1).view(-1, 1, 1, 1), batch.with_shortcut, batch.without)
    changed = ((made.x - base).abs() > 0.1).float().mean((1, 2, 3))
    assert (changed > 0).float().mean() > 0.9
    assert changed.max() < 0.7
    opacity = examples.scribble(batch.x, generator(0, 5))
    assert opacity.shape == batch.x.shape
    assert opacity.min() >= 0
    assert opacity.max() <= 1


@pytest.mark.parametrize("label", ["shortcut", "complete", "task"])
def test_pictures_are_the_same_every_time(label: str) -> None:
    one, two = (oracle_pictures("face-smile", 3, 12, label) for _ in range(2))
    assert torch.equal(one.levels, two.levels)
    assert torch.equal(one.labels, two.labels)
    assert one.levels.dtype == torch.uint8
    assert set(one.labels.tolist()) == {0.0, 1.0}
    if label == "task":
        drawn = phantom("face-smile").render(3, range(12), None)
        assert one.labels.tolist() == [*drawn.y.tolist(), *drawn.y.tolist()]
        torch.testing.assert_close(one.x(torch.arange(12)), drawn.x, atol=1e-6, rtol=0)
