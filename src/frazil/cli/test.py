"""`frazil test`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

from frazil.cli.call import Call, pipelines_named
from frazil.cli.output import table
from frazil.cli.run import Names
from frazil.errors import ConfigError
from frazil.model.words import several

if TYPE_CHECKING:
    from frazil.model.cases import CaseResult, Row

# As many lines as a person wants to see of one test.
_SHOWN = 40


def run_tests(call: Call, names: Names = None) -> None:
    """Run the tests of the pipelines' transforms. Connects to no source and no catalog."""
    call, chosen = call.with_file_among(names or [])
    project = call.project()
    pipelines = [pipeline for pipeline in pipelines_named(project, chosen) if pipeline.tests]
    if not pipelines:
        where = (
            f"the pipelines {', '.join(chosen)}" if len(chosen) > 1 else f"the pipeline {chosen[0]}" if chosen else project.file
        )
        raise ConfigError("no-tests", f"There are no tests in {where}.", fix="Write them under pipelines.<name>.tests.")
    from frazil.runtime.cases import run_cases

    results = list(run_cases(pipelines, project.settings))
    failed = [result for result in results if not result.passed]
    if call.output.json:
        counts = {"passed": len(results) - len(failed), "failed": len(failed)}
        call.output.document({**counts, "tests": [_fields(result) for result in results]})
    else:
        rows = [(r.pipeline, r.name, "ok" if r.passed else "FAILED", r.given, r.found) for r in results]
        call.output.show(table("", ("pipeline", "test", "result", "given", "found"), rows, right=("given", "found")))
        for result in failed:
            _show_failure(call, result)
        call.output.show(f"{several(len(results), 'test')}, {len(failed)} failed")
    if failed:
        raise typer.Exit(1)


def _show_failure(call: Call, result: CaseResult) -> None:
    """What is wrong, row by row and column by column."""
    lines = _lines(result)
    call.output.show(f"{result.pipeline}: {result.name}", *lines[:_SHOWN])
    if len(lines) > _SHOWN:
        call.output.show(f"  and {several(len(lines) - _SHOWN, 'line')} more")
    call.output.show("")


def _lines(result: CaseResult) -> list[str]:
    differs = result.difference
    lines = [f"  error       {result.error}"] if result.error is not None else []
    for pair in differs.differing:
        lines.append(f"  differs     {_json({name: value for name, value in pair.expected.items() if name not in pair.columns})}")
        lines += [f"    {name}: expected {_json(one)}, found {_json(other)}" for name, (one, other) in pair.columns.items()]
    lines += [f"  missing     {_json(row)}" for row in differs.missing]
    lines += [f"  unexpected  {_json(row)}" for row in differs.unexpected]
    return lines


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _fields(result: CaseResult) -> dict[str, Any]:
    differs = result.difference

    def rows(found: tuple[Row, ...]) -> list[dict[str, Any]]:
        return [dict(row) for row in found]

    return {
        "pipeline": result.pipeline,
        "test": result.name,
        "passed": result.passed,
        "given": result.given,
        "found": result.found,
        "refused": result.refused,
        "error": result.error,
        "missing": rows(differs.missing),
        "unexpected": rows(differs.unexpected),
        "differing": [
            {name: {"expected": expected, "found": found} for name, (expected, found) in pair.columns.items()}
            for pair in differs.differing
        ],
    }
