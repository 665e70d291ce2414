"""Hooks of ``mkdocs build``, which generate pages: options from the parser, the API reference from public names, and benchmark results.

They also generate pages of the notebooks with the outputs of their last run, and the figure of the architecture.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import hoptrain
from hoptrain import samplers
from hoptrain.engine.errors import EXPLAINED
from hoptrain.trainers.commands import lightning
from hoptrain.trainers.commands.parser import OptionParser
from hoptrain.trainers.tasks import TASKS
from mkdocs.structure.files import File, Files

from architecture import architecture

ROOT = Path(__file__).parents[1]
RESULTS = "../benchmarks/results/"
"""Prefix of links to benchmark results. The results lie outside of this folder, and the links also work for readers of the repository."""
REFERENCE = {"engine": "Graphs and data sets", "samplers": "Samplers and the loader", "trainers": "Training"}
"""Package -> title of the group of the API reference that has the package's public names."""


def on_config(config: Any) -> None:
    """Add a page for each public name to the navigation, and the version and the licence to each page's footer."""
    config.copyright = f"hoptrain {hoptrain.__version__}, Apache-2.0 licence"
    pages = next(section["Reference"] for section in config.nav if "Reference" in section)
    pages[:0] = [
        {title: [{name: f"reference/{name}.md"} for name in public_names(package)]}
        for package, title in REFERENCE.items()
    ]


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages and the benchmark results to the files of the site."""
    files.append(File.generated(config, "options.md", content=options_page()))
    files.append(File.generated(config, "pictures/architecture.svg", content=architecture()))
    for package in REFERENCE:
        for name in public_names(package):
            files.append(File.generated(config, f"reference/{name}.md", content=reference_page(name, package)))
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=notebook_page(path)))
    for path in sorted((ROOT / "benchmarks" / "results").iterdir()):
        files.append(File.generated(config, f"results/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Adapt a page to the site: correct links to results and notebooks, insert the explanations of messages, and rank results last in the search."""
    if page.file.src_uri.startswith("results/"):
        # otherwise the results of a search, for example for "resume", begin with tables
        page.meta["search"] = {"boost": 0.5}
    markdown = re.sub(r"\]\((notebooks/\w+)\.ipynb\)", r"](\1.md)", markdown)
    markdown = markdown.replace("<!-- entries -->", entries())
    return markdown.replace(f"]({RESULTS}", "](results/") if page.file.src_uri.count("/") == 0 else markdown


def entries() -> str:
    """Return the cause and the cure of each message, by name, as Markdown."""
    return "\n\n".join(
        f"## {name} {{#{name}}}\n\n{cause}\n\n**Cure.** {cure}" for name, (cause, cure) in EXPLAINED.items()
    )


def public_names(package: str) -> list[str]:
    """Return the public names that a package defines, sorted."""
    return sorted(name for name, home in hoptrain._HOME.items() if home.split(".")[1] == package)


def reference_page(name: str, package: str) -> str:
    """Return the reference page of a public name: its docstrings, and the options that it passes to its base classes."""
    thing = getattr(hoptrain, name)
    inherited = str(package == "engine").lower()  # graphs and data sets share most of their members
    parts = [
        f"# {name}\n",
        f"::: {thing.__module__}.{thing.__qualname__}\n    options:\n      inherited_members: {inherited}\n",
    ]
    for base in _bases_with_options(thing):
        parts.append(f"## Options of {base.__name__}\n\n`{name}` takes these as well.\n")
        parts.append(
            f"::: {base.__module__}.{base.__qualname__}.__init__\n    options:\n      show_root_heading: false\n"
        )
    return "\n".join(parts)


def _bases_with_options(thing: Any) -> list[type]:
    """Return the base classes to which a class passes the options that its own signature does not name."""
    bases, passes_on = [], inspect.isclass(thing)
    for base in thing.__mro__ if passes_on else ():
        if "__init__" in vars(base) and passes_on and base.__module__.startswith("hoptrain."):
            bases.append(base)
            kinds = {parameter.kind for parameter in inspect.signature(base.__init__).parameters.values()}
            passes_on = inspect.Parameter.VAR_KEYWORD in kinds
    return [base for base in bases if base is not thing]


def notebook_page(path: Path) -> str:
    """Return the page of a notebook: its cells with their outputs, which are text or embedded pictures."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(
            source.replace(".ipynb)", ".md)")
            if cell["cell_type"] == "markdown"
            else f"```python\n{source}\n```"
        )
        parts += [_output(output) for output in cell.get("outputs", ())]
    title, _, rest = "\n\n".join(parts).partition("\n")
    return f"{title}\n\n[This page as a notebook]({path.name})\n{rest}\n"


def _output(output: Any) -> str:
    held = output.get("data", {})
    if "image/png" in held:
        return f'<img alt="a picture that the cell drew" src="data:image/png;base64,{"".join(held["image/png"]).strip()}">'
    text = "".join(output.get("text", held.get("text/plain", "")))
    return "".join(f"    {line}\n" for line in text.splitlines())


def options_page() -> str:
    """Return the page with a table of the options of ``hoptrain fit`` for each task."""
    parts = [
        "# Options of `hoptrain fit`\n\nMade from the parser. An option of the table is given on the command line as `--data.batch_size 512`, in a "
        "configuration as `batch_size: 512` below `data:`. `hoptrain fit --data.sampler.help NeighborSampler` shows "
        "a sampler's options. Those of `--trainer.` are Lightning's. Further ones are `--config`, `--seed_everything`, `--ckpt_path` (a file, or `last`) and "
        "`--timeline FILE` ([profiling](profiling.md)).\n"
    ]
    for task in TASKS:
        for group in ("data", "model"):
            rows = list(_rows(task, group))
            parts.append(
                f"## Task {task}: {group}\n\n| option | default | what it is |\n|---|---|---|\n"
                + "\n".join(rows)
                + "\n"
            )
    return "\n".join(parts)


class _FoundError(Exception):
    """An exception that carries the parser out of the command line's class."""


class _Parsed(lightning.HoptrainCLI):
    def parse_arguments(self, parser: Any, args: Any) -> None:
        raise _FoundError(parser)


def _rows(task: str, group: str) -> Iterator[str]:
    for action in _parser_of(task)._actions:
        if (
            action.dest.startswith(f"{group}.")
            and action.help
            and "==SUPPRESS==" not in action.help
            and action.option_strings
        ):
            default = "" if action.default is None or "Unset" in repr(action.default) else f"`{action.default}`"
            about = re.sub(r"\s+", " ", action.help).replace("|", "\\|").replace("<", "&lt;")
            name = action.option_strings[0].removeprefix("--")
            is_value = "==SUPPRESS==" not in default  # False for a group of several options
            if is_value and (name.count(".") == 1 or name.startswith("data.worker_options.")):
                yield f"| `{name}` | {default} | {about} |"


_PARSERS: dict[str, Any] = {}


def _parser_of(task: str) -> Any:
    """Return the parser of ``hoptrain fit --task``."""
    if task not in _PARSERS:
        for name in samplers.__all__:
            getattr(samplers, name)
        with suppress(SystemExit):
            try:
                _Parsed(
                    TASKS[task],  # type: ignore[index]
                    "fit",
                    trainer_class=lightning.Trainer,
                    trainer_defaults=dict(lightning.TRAINER_DEFAULTS),
                    parser_class=OptionParser,
                    auto_configure_optimizers=False,
                    args=["fit"],
                )
            except _FoundError as found:
                _PARSERS[task] = found.args[0]._subcommands_action._name_parser_map["fit"]
    return _PARSERS[task]
