"""The picture of the results: medians as bars, every run as a dot. Its greys can be read on white and on black."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

FILE = "benchmarks.svg"
GREY = "#7a7f87"
OURS = "#2f81f7"
OTHERS = "#9a8f80"

Bar = tuple[str, Sequence[float]]


def draw(entries: Sequence[Mapping[str, Any]], folder: Path) -> Path:
    """One panel for each benchmark that there are results of."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    # The same results give the same file.
    mpl.rcParams |= {
        "svg.hashsalt": "frazil",
        "font.size": 9,
        "text.color": GREY,
        "axes.labelcolor": GREY,
        "axes.edgecolor": GREY,
    }
    mpl.rcParams |= {"xtick.color": GREY, "ytick.color": GREY}
    drawn = (
        _append,
        _stream,
        _cold,
        _memory,
        _partitions,
        _upsert,
        _scan,
        _topics,
        _changes,
        _loads,
        _health,
        _deletes,
        _slow_catalog,
        _catalogs,
        _stores,
    )
    panels = [panel for one in drawn if (panel := one(entries))[1]]
    heights = [len(bars) + 1 for _, bars in panels]
    figure, axes = pyplot.subplots(
        len(panels), 1, figsize=(8, 0.3 * sum(heights)), squeeze=False, height_ratios=heights, layout="constrained"
    )
    for (title, bars), area in zip(panels, axes[:, 0], strict=True):
        _panel(area, title, bars)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / FILE, transparent=True, metadata={"Date": None})
    pyplot.close(figure)
    return folder / FILE


def _panel(area: Any, title: str, bars: Sequence[Bar]) -> None:
    places = range(len(bars))
    area.barh(places, [median(runs) for _, runs in bars], color=[OURS if "frazil" in name else OTHERS for name, _ in bars])
    for place, (_, runs) in zip(places, bars, strict=True):
        area.plot(runs, [place] * len(runs), "o", color=GREY, markersize=2.5)
        area.annotate(f"{median(runs):,.3g}" if max(runs) < 1000 else f"{median(runs):,.0f}", (max(runs), place), (5, 0),
                      textcoords="offset points", va="center")  # fmt: skip
    area.set_yticks(places, [name for name, _ in bars])
    area.invert_yaxis()
    area.set_title(title, loc="left", fontsize=10)
    area.spines[["top", "right"]].set_visible(False)
    area.margins(x=0.08)


def _append(entries: Sequence[Mapping[str, Any]]) -> tuple[str, list[Bar]]:
    bars: dict[str, Sequence[float]] = {}
    for entry in _of(entries, "append"):
        for name, runs in entry["runs"].items():
            bars[name if "Parquet" in name else f"{entry['case']}: {name}"] = runs
    return f"Append of {_rows(entries, 'append')} rows, seconds (less is better)", sorted(bars.items(), key=_append_order)


def _append_order(bar: Bar) -> tuple[bool, str, bool]:
    name, _ = bar
    table, _, _ = name.partition(":")
    return "Parquet" not in name, {"unpartitioned": "0"}.get(table, table), "frazil" in name


def _stream(entries: Sequence[Mapping[str, Any]]) -> tuple[str, list[Bar]]:
    bars: dict[str, Sequence[float]] = {}
    for entry in _of(entries, "stream"):
        bars |= {name: [1000 * seconds for seconds in runs] for name, runs in entry["runs"].items()}
    return "A batch of 1,000 rows end to end, milliseconds (less is better)", sorted(
        bars.items(), key=lambda bar: "frazil" in bar[0]
    )


def _memory(entries: Sequence[Mapping[str, Any]]) -> tuple[str, list[Bar]]:
    rows = _rows(entries, "memory")
    return f"Peak memory of the same append of {rows} rows, megabytes (less is better)", _each(entries, "memory")


def _partitions(entries: Sequence[Mapping[str, Any]]) -> tuple[str, list[Bar]]:
    rows = _rows(entries, "partitions")
    return f"Peak memory of an append of {rows} rows, megabytes (less is better)", _each(entries, "partitions")


def _cold(entries: Sequence[Mapping[str, Any]]) -> tuple[str, list[Bar]]:
    return "The first write of a new Java, seconds (less is better)", _each(entries, "cold")


def _loads(entries: Sequence[Mapping[str, Any]]) -> tuple[str, list[Bar]]:
    return "Loads of dlt pipelines, seconds (less is better)", _each(entries, "loads")


def _health(entries: Sequence[Mapping[str, Any]]) -> tuple[str, list[Bar]]:
    timed = [entry for entry in entries if "commits" in entry["case"] or "scan by" in entry["case"]]
    return "A table after thousands of small commits, seconds (less is better)", [
        *_each(timed, "health"),
        *_each(timed, "health_upserts"),
    ]


def _deletes(entries: Sequence[Mapping[str, Any]]) -> tuple[str, list[Bar]]:
    return "20,000 delete files settled, seconds (less is better)", _each(entries, "deletes")


def _slow_catalog(entries: Sequence[Mapping[str, Any]]) -> tuple[str, list[Bar]]:
    return "A backlog through a slow catalog, seconds (less is better)", _each(entries, "slow_catalog")


def _catalogs(entries: Sequence[Mapping[str, Any]]) -> tuple[str, list[Bar]]:
    bars: dict[str, Sequence[float]] = {}
    for entry in _of(entries, "catalogs"):
        bars |= {name: [1000 * seconds for seconds in runs] for name, runs in entry["runs"].items()}
    return "frazil's commit of a batch of 1,000 rows by catalog, milliseconds (less is better)", sorted(bars.items())


def _stores(entries: Sequence[Mapping[str, Any]]) -> tuple[str, list[Bar]]:
    bars: dict[str, Sequence[float]] = {}
    for entry in _of(entries, "stores"):
        bars |= entry["runs"]
    return f"Append of {_rows(entries, 'stores')} rows to S3, seconds (less is better)", list(bars.items())


def _each(entries: Sequence[Mapping[str, Any]], benchmark: str) -> list[Bar]:
    """The bars of every case, ours after the other's."""
    return [
        (f"{entry['case']}: {name}", runs)
        for entry in _of(entries, benchmark)
        for name, runs in sorted(entry["runs"].items(), key=lambda item: "frazil" in item[0])
    ]


def _upsert(entries: Sequence[Mapping[str, Any]]) -> tuple[str, list[Bar]]:
    bars: dict[str, Sequence[float]] = {}
    for entry in _of(entries, "upsert"):
        if entry["case"][0].isdigit():
            bars |= {f"{entry['case']} rows: {name}": runs for name, runs in entry["runs"].items()}
    return "Upsert of 50,000 rows into a table, seconds (less is better)", list(bars.items())


def _scan(entries: Sequence[Mapping[str, Any]]) -> tuple[str, list[Bar]]:
    bars: dict[str, Sequence[float]] = {}
    for entry in _of(entries, "upsert"):
        if entry["case"].startswith("scan"):
            bars |= entry["runs"]
    return "Scan after 20 upserts, seconds (less is better)", list(bars.items())


def _topics(entries: Sequence[Mapping[str, Any]]) -> tuple[str, list[Bar]]:
    bars = {f"{entry['case']}: {name}": runs for entry in _of(entries, "topics") for name, runs in entry["runs"].items()}
    return "JSON messages of a topic, seconds, and seconds of processor time (less is better)", list(bars.items())


def _changes(entries: Sequence[Mapping[str, Any]]) -> tuple[str, list[Bar]]:
    bars: dict[str, Sequence[float]] = {}
    for entry in _of(entries, "changes"):
        bars |= {(f"{entry['case']}: {name}" if "frazil" in name else name): runs for name, runs in entry["runs"].items()}
    return "Changes of a database a second (more is better)", list(bars.items())


def _of(entries: Sequence[Mapping[str, Any]], benchmark: str) -> list[Mapping[str, Any]]:
    return [entry for entry in entries if entry["benchmark"] == benchmark]


def _rows(entries: Sequence[Mapping[str, Any]], benchmark: str) -> str:
    return next((f"{entry['details']['rows']:,}" for entry in _of(entries, benchmark)), "")
