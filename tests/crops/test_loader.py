"""Loader processes that are not forked have nothing from their parent but what is handed to them."""

from __future__ import annotations

import pickle

from svtoolkit.audio.shards.reader import configure_remote, configured_remote
from svtoolkit.audio.shards.remote_cache import RemoteShards
from svtoolkit.crops import loader
from svtoolkit.crops.sampler import BatchSampler


def test_they_read_shards_at_a_url_through_the_same_cache(monkeypatch, tmp_path):
    handed_over = []
    monkeypatch.setattr(loader, "DataLoader", lambda *_, **options: handed_over.append(options) or [])
    monkeypatch.setattr(loader, "IS_FORKED", False)
    monkeypatch.setattr(loader, "ignore_terminal_signals", lambda: None)
    sampler = BatchSampler(4, batch_size=2, micro_batch=2, seed=0)
    before = configure_remote(RemoteShards(tmp_path, 1234, {"https://host/a.tar": "ab"}))
    try:
        assert list(loader.load_crops([], sampler, num_workers=1, pin_memory=False)) == []
        configure_remote(None)
        begin_work = pickle.loads(pickle.dumps(handed_over[0]["worker_init_fn"]))
        begin_work(0)
        found = configured_remote()
    finally:
        configure_remote(before)
    assert handed_over[0]["multiprocessing_context"] is None, "the system's own choice"
    assert found is not None
    assert (found.cache_dir, found.max_bytes, found.checksums) == (tmp_path, 1234, {"https://host/a.tar": "ab"})
