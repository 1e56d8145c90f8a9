import pytest

from worldline.runtime.store_sqlite import SqliteStore
from worldline.testing.memory_store import MemoryStore
from worldline.testing.stores import StoreSuite


class TestMemoryStore(StoreSuite):
    @pytest.fixture
    def store(self):
        return MemoryStore()


class TestSqliteStore(StoreSuite):
    @pytest.fixture
    async def store(self, tmp_path):
        store = await SqliteStore.open(tmp_path / "record.sqlite")
        yield store
        await store.close()
