"""A source of one's own for example.custom.yaml: made-up ice charts of three seas, a page for each week."""

from datetime import date, timedelta

from bizon.source.config import SourceConfig
from bizon.source.models import SourceIncrementalState, SourceIteration, SourceRecord
from bizon.source.source import AbstractSource
from pydantic import Field

SEAS = ("Barents Sea", "Kara Sea", "Laptev Sea")
FIRST = date(2026, 1, 5)


class IceChartsConfig(SourceConfig):
    """What the file may say besides name, stream and mode."""

    weeks: int = Field(4, ge=1, description="How many charts there are.")


class IceCharts(AbstractSource):
    """One record for each sea and week."""

    @staticmethod
    def streams():
        return ["charts"]

    @staticmethod
    def get_config_class():
        return IceChartsConfig

    def get_authenticator(self):
        return None

    def check_connection(self):
        return True, None

    def get_total_records_count(self):
        return self.config.weeks * len(SEAS)

    def get(self, pagination: dict | None = None) -> SourceIteration:
        """Everything, from the first week on."""
        return self._page((pagination or {}).get("week", 0))

    def get_records_after(self, source_state: SourceIncrementalState, pagination: dict | None = None) -> SourceIteration:
        """What came after the week that the last run ended with."""
        return self._page((pagination or {}).get("week", source_state.state.get("week", 0)))

    def _page(self, week: int) -> SourceIteration:
        if week >= self.config.weeks:
            return SourceIteration(records=[], next_pagination={}, next_state={"week": week})
        day = FIRST + timedelta(weeks=week)
        records = [
            SourceRecord(id=f"{day}/{sea}", data={"sea": sea, "day": day, "thickness": 0.5 + 0.1 * week + 0.2 * number})
            for number, sea in enumerate(SEAS)
        ]
        # The next page, and where the next run begins: both are kept in the table, with the rows.
        return SourceIteration(records=records, next_pagination={"week": week + 1}, next_state={"week": week + 1})
