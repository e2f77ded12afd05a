"""hwbench list <kind>."""

from __future__ import annotations

from typing import Annotated

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options

PLURALS = {
    "ops": "op", "spaces": "space", "runtimes": "runtime", "predictors": "predictor",
    "proxies": "proxy", "objectives": "objective", "strategies": "strategy",
}  # fmt: skip


def run(
    kind: Annotated[str, typer.Argument(help=f"One of {', '.join(PLURALS)}.")],
    workspace: options.Workspace = options.HERE,
    json: options.Json = False,
) -> None:
    """List what is registered: parts by name with what they are; fitted predictors with their errors."""
    from hwbench import registry
    from hwbench.errors import UnknownName

    singular = PLURALS.get(kind, kind)
    if singular not in registry.KINDS:
        raise UnknownName(registry.unknown("kind", kind, PLURALS))
    rows = [{"name": name, "about": registry.about(singular, name)} for name in registry.names(singular)]
    if singular == "space":
        from hwbench.space import base as spaces

        for row in rows:
            space = registry.get("space", row["name"])
            row.update(size=f"{spaces.size(space):.3g}", ops=str(len(spaces.distinct_specs(space))))
    if singular == "predictor":
        rows += _fitted(workspace)
    if json:
        console.emit_json(rows)
    else:
        console.table(kind.capitalize(), rows, {key: key for row in rows for key in row})


def _fitted(workspace: object) -> list[dict[str, str]]:
    from hwbench.workspace import Workspace, read_json

    found = []
    for path in Workspace.at(str(workspace)).each("predictors", pattern="*/*/card.json"):
        card = read_json(path, "predictor card")
        error = card["statistics"]["min"]["holdout"]
        about = f"fitted {card['predictor']} for {', '.join(card['spaces'])}"
        found.append(
            {
                "name": f"{card['device']}/{path.parent.name}",
                "about": about,
                "held-out error": f"{error['mean_abs_error']:.2%} mean, {error['max_abs_error']:.2%} worst of {error['n']}",
            }
        )
    return found
