"""One small world for all tests of audits: its pictures are made once."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from fastdime.audit.audit import Found
from support.shortcuts import World, make_world


@dataclass(frozen=True)
class Made:
    """A world that was audited, and where its pictures are; other models can be asked about them."""

    world: World
    out: Path
    found: Found


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="session")
def made(world: World) -> Made:
    out = world.table.parents[1] / "audit"
    return Made(world, out, world.audit(out, task="sick", by=("site",)))
