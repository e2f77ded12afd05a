"""The site of all reports: a gallery, a page per study and device, runtimes, strategies and proxies side by side, one search.

    hwbench site reports/ --out site/

Reads stored files only. Pages ask for nothing but files of the site, so it opens from a folder as well as from a server.
The same files give the same bytes. What is no report (raw stages, logs) stays where it is and is named.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from hwbench.core.command import command, form
from hwbench.core.errors import HwbenchError, UsageError
from hwbench.core.files import atomic_write
from hwbench.core.progress import Tick, no_tick
from hwbench.core.workspace import Workspace
from hwbench.optimize.result import SearchResult
from hwbench.space.architectures import RESULT_NAME
from hwbench.study import charts, page, prose, trials, words
from hwbench.study.page import Interactive
from hwbench.study.render import Block, Panel, Section, explorer_block, front_panels, numbered

DATED = re.compile(r"(.+)-(\d{4}-\d{2}-\d{2})$")
PICTURES = (".svg", ".png")
PAGES = (("Gallery", "index.html"), ("Devices", "devices.html"), ("Runtimes", "runtimes.html"),
         ("Strategies", "strategies.html"), ("Proxies", "proxies.html"), ("Words", "words.html"))  # fmt: skip
MOST_WORDS = 5000
"""Characters of a document that are searched."""
MOST_BARS = 8


@dataclass
class Site:
    """A site that is being written."""

    out: Path
    index: list[dict[str, str]] = field(default_factory=list)
    """What is searched: `title`, `page`, `kind`, `words`."""
    written: list[str] = field(default_factory=list)

    def add(
        self, name: str, title: str, subtitle: str, sections: Sequence[Section], more: Interactive | None = None, **values: Any
    ) -> None:
        """Writes a page."""
        root = "../" * name.count("/")
        live = Interactive(more.explorer if more else None, more.tables if more else {}, root)
        text = page.html(title, subtitle, numbered(sections), "hwbench site", live, site=PAGES, **values)
        atomic_write(self.out / name, text)
        self.written.append(name)

    def find(self, title: str, name: str, kind: str, text: str) -> None:
        """Makes something findable."""
        self.index.append(
            {"title": title, "page": name, "kind": kind, "words": " ".join(f"{title} {kind} {text}".split())[:MOST_WORDS]}
        )


def site(
    reports: str | Path = "reports",
    out: str | Path = "site",
    workspace: str | Path = ".",
    tick: Tick = no_tick,
) -> dict[str, Any]:
    """Writes the site of a folder of reports.

    Args:
        reports: A folder with one folder per study.
        out: Where to write; what an earlier site left there is replaced.
        workspace: Where devices, tables and predictors are, beside the shipped ones.
        tick: Is told how many studies are written, of how many.

    Returns:
        `index` (the first page), `pages`, `studies`, `bytes`.

    Raises:
        UsageError: there are no reports, or the folder to write to holds something else.
    """
    from hwbench.study import site_pages

    source, target, place = Path(reports), Path(out), Workspace.at(workspace)
    folders = sorted((each for each in source.iterdir() if each.is_dir()), key=_newest_first) if source.is_dir() else []
    studies = [study for study in (Study.of(each) for each in folders) if study.documents or study.searches]
    if not studies:
        raise UsageError(
            f"{source} holds no reports (folders with .md files or searches); give another, {form(command('site', 'reports'))}"
        )
    _clear(target)
    made = Site(target)
    cards = []
    for i, study in enumerate(studies):
        tick(i, len(studies) + 1)
        cards.append(_write_study(made, study, source))
    site_pages.devices(made, place, studies)
    tick(len(studies) + 1, len(studies) + 1)
    site_pages.runtimes(made, studies)
    site_pages.strategies(made, studies)
    site_pages.proxies(made, studies)
    _words(made)
    _assets(made)
    _gallery(made, cards)
    size = sum(each.stat().st_size for each in target.rglob("*") if each.is_file())
    return {"index": str(target / "index.html"), "pages": len(made.written), "studies": len(studies), "bytes": size}


@dataclass(frozen=True)
class Study:
    """A folder of reports."""

    folder: Path
    documents: Sequence[Path]
    searches: Sequence[Path]
    """Folders of searches with their trials."""

    @classmethod
    def of(cls, folder: Path) -> Study:
        """What a folder holds."""
        documents = sorted(folder.rglob("*.md"), key=lambda path: (len(path.parts), path.name != "README.md", path.as_posix()))
        searches = sorted(path.parent for path in folder.rglob(RESULT_NAME) if (path.parent / "trials.parquet").exists())
        return cls(folder, documents, searches)

    @property
    def name(self) -> str:
        """Of its folder."""
        return self.folder.name

    @property
    def page(self) -> str:
        """Its page on the site."""
        return f"studies/{self.name}.html"

    @property
    def date(self) -> str:
        """Of the folder's name; nothing where it has none."""
        found = DATED.match(self.name)
        return found.group(2) if found else ""


def _newest_first(folder: Path) -> tuple[int, str]:
    found = DATED.match(folder.name)
    return (-int(found.group(2).replace("-", "")), folder.name) if found else (0, folder.name)


def _clear(target: Path) -> None:
    """Removes what an earlier site left, and begins a new one; refuses a folder that is none."""
    if target.exists():
        if not target.is_dir() or (any(target.iterdir()) and not (target / "assets" / page.SCRIPT).exists()):
            raise UsageError(f"{target} holds something that is no site; give another folder with --out.")
        for name in ("studies", "devices", "assets"):
            shutil.rmtree(target / name, ignore_errors=True)
    atomic_write(
        target / "assets" / page.SCRIPT, page.text_of(page.SCRIPT)
    )  # first: by it a site is known that was not finished


def _write_study(made: Site, study: Study, reports: Path) -> tuple[str, str, str, str]:
    """The page of a study; returns its card in the gallery: page, picture, title, text."""
    read = [(path, _prose(study, path, i, reports)) for i, path in enumerate(study.documents, 1)]
    pictures = list(_copied(made, study))
    sections: list[Section] = []
    notice, told = "", None
    if study.searches:
        told, sections, notice = _search(study.searches[0])
        panels = [panel for _, blocks in sections for block in blocks for panel in block.panels]
        if panels and not pictures:
            pictures = [f"studies/{study.name}/front.svg"]
            atomic_write(made.out / pictures[0], panels[0].svg)
    for path, document in read:
        label = path.relative_to(study.folder).as_posix()
        sections.append(
            (document.title if len(read) == 1 else f"{label}: {document.title}", [Block("prose", prose=document.html)])
        )
    raw = sorted(
        {path.relative_to(study.folder).parts[0] for path in study.folder.rglob("*") if path.suffix not in (".md", *PICTURES)}
    )
    sections.append(("Files", [Block("text", f"Raw data in {reports.name}/{study.name}: {', '.join(raw) or 'none'}.")]))
    title = read[0][1].title if read else study.name
    repeats = [document.command for _, document in read if document.command]
    if repeats:
        sections.append(("Again", [Block("code", "\n".join(dict.fromkeys(repeats)))]))
    if not pictures:
        pictures = list(_drawn(made, study, [document for _, document in read]))
    made.add(
        study.page,
        title,
        f"{study.name}" + (f", {study.date}" if study.date else ""),
        sections,
        Interactive(told),
        notice=notice,
    )
    text = " ".join(document.text for _, document in read)
    for path, document in read:
        made.find(document.title, study.page, f"{study.name}/{path.relative_to(study.folder).as_posix()}", document.text)
    said = [each for each in (study.date, _short(text)) if each]
    return study.page, pictures[0] if pictures else "", study.name.removesuffix(f"-{study.date}"), ": ".join(said)


def _short(text: str, longest: int = 110) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= longest else plain[: plain.rfind(" ", 0, longest)] + " \N{HORIZONTAL ELLIPSIS}"


def _prose(study: Study, path: Path, number: int, reports: Path) -> prose.Prose:
    """A document of a study, with its links and pictures turned to the site's."""
    here = path.parent.relative_to(reports)

    def resolved(target: str) -> PurePosixPath | None:
        """What a link names, from the folder of reports; None where it lies outside."""
        if re.match(r"[a-z][a-z0-9+.-]*:|/|#", target, re.IGNORECASE):
            return None
        parts: list[str] = []
        for part in PurePosixPath(here.as_posix(), target.partition("#")[0]).parts:
            if part == "..":
                if not parts:
                    return None
                parts.pop()
            else:
                parts.append(part)
        return PurePosixPath(*parts)

    def link(target: str) -> str | None:
        if target.startswith(("https://", "http://")):
            return target
        found = resolved(target)
        if found is None or not found.parts or not (reports / found).exists():
            return None
        other = found.parts[0]
        return f"{other}.html" if Study.of(reports / other).documents else None

    def picture(target: str) -> str | None:
        found = resolved(target)
        return found.as_posix() if found is not None and found.suffix in PICTURES and (reports / found).exists() else None

    return prose.read(path.read_text(encoding="utf-8", errors="replace"), f"table-{number}", link, picture)


def _copied(made: Site, study: Study) -> Iterator[str]:
    """Pictures of a study, copied; largest report pictures first, as one stands in the gallery."""
    for path in sorted((each for each in study.folder.rglob("*") if each.suffix in PICTURES), key=_telling):
        target = f"studies/{study.name}/{path.relative_to(study.folder).as_posix()}"
        atomic_write(made.out / target, path.read_bytes())
        yield target


def _telling(path: Path) -> tuple[bool, int, str]:
    return not path.stem.startswith(("front", "compare", "known", "paid")), len(path.parts), path.as_posix()


def _drawn(made: Site, study: Study, documents: Sequence[prose.Prose]) -> Iterator[str]:
    """A picture of a study that has none: the first column of numbers of its first table that has one."""
    for document in documents:
        if document.first_table is None:
            continue
        heads, rows = document.first_table
        for column in range(1, len(heads)):
            values = [(row[0], _number(row[column])) for row in rows if len(row) > column]
            known = [(name, value) for name, value in values if value is not None][:MOST_BARS]
            if len(known) > 1:
                target = f"studies/{study.name}/first-table.svg"
                atomic_write(made.out / target, charts.svg(charts.bars(heads[column], known)))
                yield target
                return


def _number(text: str) -> float | None:
    found = re.match(r"[-+]?(\d[\d,]*\.?\d*|\.\d+)", text)
    return float(found.group().replace(",", "")) if found else None


def _search(folder: Path) -> tuple[Mapping[str, Any] | None, list[Section], str]:
    """The explorer of a stored search: from its own files alone, so without what its predictor would say of blocks."""
    try:
        result = SearchResult.read(folder)
        told = trials.read(folder, result)
    except HwbenchError as error:
        return None, [], f"The search in {folder.name} cannot be explored: {error}"
    first = result.settings.first
    best = [(point[first], point["accuracy"]) for point in result.front]
    budget = result.settings.bounds[first]
    panels = front_panels(told.shown, best, [], budget, 0.0, (first, result.settings.score_name))
    caption = f"Score against {first}, predicted: {told.words}."
    sections: list[Section] = [("The trials", [Block("picture", caption, panels=panels), explorer_block()])]
    return trials.explorer(told, result, None, "Its predictor was not asked again: no noise, no times of blocks."), sections, ""


def _words(made: Site) -> None:
    made.add("words.html", "Words", "What the marks and words of these pages mean", [], words=words.WORDS)
    for word, meaning in words.WORDS.items():
        made.find(word, f"words.html#{words.place(word)}", "word", meaning)


def _assets(made: Site) -> None:
    folder = made.out / "assets"
    atomic_write(folder / "vega.js", "\n".join(page.text_of(name) for name in page.LIBRARIES))
    for name in (page.SCRIPT, page.STYLE, page.LICENCES):
        atomic_write(folder / name, page.text_of(name))
    atomic_write(folder / "index.js", f"globalThis.hwbenchIndex={page.as_json(made.index)};\n")


def _gallery(made: Site, cards: Sequence[tuple[str, str, str, str]]) -> None:
    more = [(target, name, "") for name, target in PAGES[1:]]
    sections: list[Section] = [("All studies", [Block("gallery", rows=cards)]), ("Side by side", [Block("links", rows=more)])]
    subtitle = f"{len(cards)} studies, each with its numbers, pictures and the command that makes it again"
    made.add("index.html", "hwbench: reports", subtitle, sections, search=True)


def panel(name: str, spec: charts.Spec, caption: str) -> Block:
    """A chart with its caption."""
    return Block("picture", caption, panels=[Panel(name, spec)])
