"""Draw the layers of the code, and the path of a mini-batch through them, as an SVG.

``hooks.py`` draws it at each build of the documentation, so it shows the imports of the code as it is. Only imports that are executed when a module is
loaded count: neither those for types nor those inside functions, which belong to options. Within a layer an arrow that follows from others is left out.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from html import escape
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from textwrap import wrap
from typing import NamedTuple

ROOT = Path(__file__).parents[1] / "hoptrain"


class Layer(NamedTuple):
    """A layer of the architecture: packages that may not import each other, and how the figure shows them."""

    packages: tuple[str, ...]
    about: str
    colour: str
    tint: str


LAYERS = (
    Layer(("benchmarks",), "a module or a folder for each question", "#5f6770", "#f2f3f5"),
    Layer(("pyg", "dgl"), "loaders and layers of PyG and DGL", "#8a3f6b", "#f9edf4"),
    Layer(("trainers",), "Lightning, tasks, models, ranks", "#6b4fa0", "#f1edf9"),
    Layer(("samplers",), "algorithms, the batch, the loader", "#26774a", "#e8f5ee"),
    Layer(
        ("engine",),
        "graphs, features, the schedule, processes and shared memory; no algorithm",
        "#2f66ad",
        "#e9f0fa",
    ),
    Layer(("kernels",), "compute on arrays: decisions in shared, loops in cpu and cuda", "#a8521a", "#fbefe5"),
)
LAYER_OF = {package: layer for layer in LAYERS for package in layer.packages}
UNDIVIDED = ("pyg", "dgl")


class Station(NamedTuple):
    """A station of a mini-batch's path, with the files or folders that contain its code."""

    name: str
    about: str
    places: tuple[str, ...]


PATH = (
    Station("worker", "makes every W-th step", ("engine/queue/worker.py", "samplers/loader/task.py")),
    Station("schedule", "seeds of step k", ("engine/schedule.py",)),
    Station("sampler", "algorithm and options", ("samplers/nodewise/neighbor.py",)),
    Station("hops", "draws edges, hop by hop", ("samplers/hops.py", "kernels/cpu/nodewise")),
    Station("rows", "features and labels", ("samplers/loader/gather.py",)),
    Station("queue slot", "shared memory", ("engine/queue/ring.py",)),
    Station("batch", "views of the slot", ("engine/queue/pool.py", "samplers/loader/loader.py")),
    Station("model", "layers on the blocks", ("trainers/models/gnn.py",)),
    Station("loss", "a step of Lightning", ("trainers/tasks/nodes/task.py", "trainers/metrics/labels.py")),
)
IN_WORKER = 5
"""Number of entries of ``PATH`` that run in a sampler process. The next entry, the queue slot, connects this process with the trainer."""

WIDTH, BAND_WIDTH = 1000, 868
LINE, GAP, BETWEEN = 15, 7, 24
"""Height of a line of text, space between the boxes of a column, and space between columns."""


def architecture() -> str:
    """Return the figure as the text of an SVG.

    Raises:
        FileNotFoundError: a station names a file or folder that no longer exists.
        CycleError: boxes of a layer import each other.
    """
    paths = {_module(path): path for package in LAYER_OF for path in sorted((ROOT / package).rglob("*.py"))}
    imports = {module: set(_imports(path, paths)) for module, path in paths.items()}
    boxes = _boxes(paths, imports)
    parts, y = _path_parts()
    bounds: list[tuple[float, float]] = []
    for layer in LAYERS:
        of_layer = {box: modules for box, modules in boxes.items() if box.split(".")[0] in layer.packages}
        drawn, end = _layer_parts(layer, of_layer, imports, y)
        parts += drawn
        bounds.append((y, end))
        y = end + 16
    number = Counter((_layer(module), _layer(other)) for module, others in imports.items() for other in others)
    parts += _gutter_parts(bounds, number)
    label = (
        "The path of a mini-batch through the modules, and the layers with their subpackages: imports go down"
    )
    look = (
        f'viewBox="0 0 {WIDTH} {y:.0f}" font-family="sans-serif" font-size="13" role="img" aria-label="{label}"'
    )
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {look}>', STYLE, *parts, "</svg>\n"])


def _module(path: Path) -> str:
    """Return the name of a file's module, without ``hoptrain.``."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _layer(module: str) -> int:
    return LAYERS.index(LAYER_OF[module.split(".")[0]])


def _imports(path: Path, paths: Mapping[str, Path]) -> Iterator[str]:
    """Yield the modules that a file imports when it is loaded; for a name that a package imports lazily, the module that has it."""
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        is_for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if is_for_types or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        waiting.extend(ast.iter_child_nodes(node))
        package = (node.module or "").removeprefix("hoptrain.") if isinstance(node, ast.ImportFrom) else ""
        if isinstance(node, ast.ImportFrom) and package in paths:
            homes = (
                getattr(import_module(f"hoptrain.{package}"), "_HOME", {})
                if package in LAYER_OF.keys() - UNDIVIDED
                else {}
            )
            for alias in node.names:
                home = homes.get(alias.name, alias.name)
                full = home.removeprefix("hoptrain.") if home.startswith("hoptrain.") else f"{package}.{home}"
                yield full if full in paths else package


def _boxes(paths: Mapping[str, Path], imports: Mapping[str, set[str]]) -> dict[str, list[str]]:
    """Return the modules of each box: a subpackage; a package's own files that import some of its subpackages, and those that import none."""
    own = {module for module, path in paths.items() if path.parent.parent == ROOT}
    boxes = defaultdict(list)
    for module in paths:
        package, *names = module.split(".")
        if package in UNDIVIDED:
            boxes[package].append(module)
        elif module not in own:
            boxes[f"{package}.{names[0]}"].append(module)
        else:
            within = {one: {other for other in imports[one] if other.startswith(f"{package}.")} for one in own}
            boxes[f"{package}. {'low' if _reached(module, within) <= own else 'high'}"].append(module)
    return dict(boxes)


def _reached(start: str, arrows: Mapping[str, set[str]]) -> set[str]:
    """Return all that is reached from ``start`` by one arrow or more."""
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        new = arrows.get(waiting.pop(), set()) - reached
        reached |= new
        waiting.extend(new)
    return reached


def _arrows(boxes: Mapping[str, list[str]], imports: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the boxes that each box imports, without those that follow from others."""
    box_of = {module: box for box, modules in boxes.items() for module in modules}
    arrows = {
        box: {box_of.get(other, box) for module in modules for other in imports[module]} - {box}
        for box, modules in boxes.items()
    }
    return {
        box: {other for other in others if not any(other in _reached(one, arrows) for one in others)}
        for box, others in arrows.items()
    }


def _columns(arrows: Mapping[str, set[str]]) -> tuple[list[list[str]], list[tuple[str, str]]]:
    """Return the boxes by column, importers on the left, with a place ``>BOX/COLUMN`` where arrows to a box pass; and the pieces of arrows."""
    depth: dict[str, int] = {}
    for box in TopologicalSorter(arrows).static_order():
        depth[box] = max((depth[other] + 1 for other in arrows[box]), default=0)
    columns: list[list[str]] = [[] for _ in range(max(depth.values()) + 1)]
    pieces = set()
    for box, others in sorted(arrows.items()):
        columns[depth[box]].append(box)
        for other in sorted(others):
            places = [f">{other}/{column}" for column in range(depth[box] - 1, depth[other], -1)]
            for place in places:
                column = columns[int(place.rpartition("/")[2])]
                column += [] if place in column else [place]
            pieces |= set(pairwise([box, *places, other]))
    columns.reverse()
    ordered = sorted(pieces)
    for end in (
        0,
        1,
    ) * 8:  # order columns by the positions of importers, then of imports: fewer lines cross
        at = {box: (i + 0.5) / len(column) for column in columns for i, box in enumerate(column)}
        beside = {
            box: [at[piece[end]] for piece in ordered if piece[1 - end] == box] or [at[box]] for box in at
        }
        mean = {box: sum(places) / len(places) for box, places in beside.items()}
        for column in columns:
            column.sort(key=mean.__getitem__)
    return columns, ordered


STYLE = """<style>
text { fill: #333 } .small { font-size: 11px } .title { font-weight: bold; font-size: 15px } .name { font-weight: bold }
.arrow { fill: none; stroke: #70757c; stroke-width: 1.1 } .head { stroke: none; fill: #70757c } .process { fill: none; stroke: #9a9fa6; stroke-dasharray: 5 4 }
</style>"""


def _text(x: float, y: float, text: str, kind: str = "", colour: str = "") -> str:
    more = (f" class='{kind}'" if kind else "") + (f" style='fill:{colour}'" if colour else "")
    return f'<text x="{x:.0f}" y="{y:.0f}"{more}>{escape(text)}</text>'


def _rect(x: float, y: float, width: float, height: float, look: str) -> str:
    return f'<rect x="{x:.0f}" y="{y:.1f}" width="{width:.0f}" height="{height:.1f}" {look}/>'


def _look(layer: Layer, tint: str = "#fff") -> str:
    return f'rx="5" fill="{tint}" stroke="{layer.colour}" stroke-width="1.3"'


def _arrow(path: str, x: float, y: float, turn: int = 0, colour: str = "") -> str:
    """Return a line and its head at (x, y), which points to the right, or is turned by ``turn`` degrees."""
    of_line, of_head = (f" style='stroke:{colour}'", f" style='fill:{colour}'") if colour else ("", "")
    head = f'<path class="head" d="M0,0 l-7,-3.5 v7 z" transform="translate({x:.0f},{y:.1f}) rotate({turn})"{of_head}/>'
    return f'<path class="arrow" d="{path}"{of_line}/>{head}'


def _path_parts() -> tuple[list[str], float]:
    """Return the path of a mini-batch, the sampler process above the trainer and the slot right of both; and the y where it ends."""
    width, height, gap = 158, 106, 14
    rows = 50, 50 + height + 46
    parts = [_text(2, 14, "The path of one mini-batch, from seeds to loss", "title")]
    for y, process in zip(
        rows, ("a sampler process: NumPy and Numba, no torch", "the trainer's process"), strict=True
    ):
        parts += [
            _rect(1, y - 26, 5 * width + 4 * gap + 18, height + 35, 'rx="8" class="process"'),
            _text(12, y - 10, process),
        ]
    parts += [
        _text(12, rows[1] + 40, "Colours are those of the layers", "small"),
        _text(12, rows[1] + 56, "below. W is the number of workers.", "small"),
    ]
    for number, station in enumerate(PATH):
        column = number if number <= IN_WORKER else 2 * IN_WORKER - number
        x, y, high = 10 + column * (width + gap), rows[number > IN_WORKER], height
        if number == IN_WORKER:
            high += rows[1] - rows[0]
        wide = min(width, WIDTH - x - 2)
        layer = LAYER_OF[station.places[0].split("/")[0]]
        parts += [
            _rect(x, y, wide, high, _look(layer, layer.tint)),
            _text(x + 8, y + 19, station.name, "name", layer.colour),
        ]
        parts += [_text(x + 8, y + 35, station.about, "small")]
        parts += [
            _text(x + 8, y + 55 + 14 * i, line, "small") for i, line in enumerate(_place_lines(station, wide))
        ]
        middle = y + height / 2
        if 0 < number <= IN_WORKER:
            parts.append(_arrow(f"M{x - gap},{middle} h{gap - 6}", x - 1, middle))
        elif number:
            parts.append(_arrow(f"M{x + width + gap},{middle} h{6 - gap}", x + width + 1, middle, 180))
    return parts, rows[1] + height + 36


def _place_lines(station: Station, width: float) -> list[str]:
    """Return the places of a station, a long one in two lines, and check that the code has them."""
    lines = []
    for place in station.places:
        (ROOT / place).stat()
        folder, slash, name = place.rpartition("/")
        lines += [place] if 6.4 * len(place) < width - 12 else [folder + slash, name]
    return lines


def _layer_parts(
    layer: Layer, boxes: Mapping[str, list[str]], imports: Mapping[str, set[str]], top: float
) -> tuple[list[str], float]:
    """Return a layer as a band whose boxes import others to the right; and the y where it ends."""
    lines = {box: text for box, modules in boxes.items() if (text := _lines(box, modules))}
    columns, pieces = _columns(_arrows({box: boxes[box] for box in lines}, imports))
    tall = {box: LINE * len(lines[box]) + 9 if box in lines else 6 for column in columns for box in column}
    wide = [
        max(max(8 * len(line) + 15 for line in lines[box]) for box in column if box in lines)
        for column in columns
    ]
    height = max(sum(tall[box] + GAP for box in column) - GAP for column in columns)
    step = min(BETWEEN + 40.0, (BAND_WIDTH - 24 - sum(wide)) / max(1, len(columns) - 1))
    place: dict[str, tuple[float, float, float]] = {}
    x = 12.0
    for column, width in zip(columns, wide, strict=True):
        y = top + 30 + (height - sum(tall[box] + GAP for box in column) + GAP) / 2
        for box in column:
            place[box] = (x, y, width)
            y += tall[box] + GAP
        x += width + step
    files = sum(map(len, boxes.values()))
    parts = [_rect(1, top, BAND_WIDTH, height + 42, _look(layer, layer.tint))]
    title = ", ".join(
        package if package not in UNDIVIDED else f"hoptrain.{package}" for package in layer.packages
    )
    about = f'<tspan class="title" style="fill:{layer.colour}">{title}</tspan><tspan dx="12">{files} files: {layer.about}</tspan>'
    parts.append(f'<text x="12" y="{top + 19:.0f}">{about}</text>')
    for one, other in pieces:
        (x0, y0, width), (x1, y1, _) = place[one], place[other]
        begin, end, right, bend = y0 + tall[one] / 2, y1 + tall[other] / 2, x0 + width, step / 2
        line = f"M{x0 if one[0] == '>' else right:.0f},{begin:.1f} H{right:.0f}"
        line += f" C{right + bend:.0f},{begin:.1f} {x1 - bend:.0f},{end:.1f} {x1 - 6:.0f},{end:.1f}"
        parts.append(f'<path class="arrow" d="{line} h6"/>' if other[0] == ">" else _arrow(line, x1, end))
    for box, (x, y, width) in place.items():
        if box in lines:
            parts.append(_rect(x, y, width, tall[box], _look(layer)))
            parts += [
                _text(x + 8, y + 16 + LINE * i, line, "small" if " " in box else "")
                for i, line in enumerate(lines[box])
            ]
    return parts, top + height + 42


def _lines(box: str, modules: list[str]) -> list[str]:
    """Return what a box shows: a subpackage's name and number of files, or the names of a package's own files."""
    package, _, name = box.partition(".")
    if " " not in name:
        return [f"{name or f'hoptrain.{package}'} {len(modules)}"]
    return wrap(
        ", ".join(name for module in modules if (name := module.partition(".")[2])), 20, break_long_words=False
    )


def _gutter_parts(bounds: list[tuple[float, float]], number: Mapping[tuple[int, int], int]) -> list[str]:
    """Return arrows from layer to layer beside the bands, with the number of imports."""
    parts = [_text(BAND_WIDTH + 12, bounds[0][0] - 8, "number of imports", "small")]
    pairs = sorted(pair for pair in number if pair[0] != pair[1])
    for one, other in pairs:
        lane = BAND_WIDTH + 38 + 29 * (other - 1)
        outgoing = [pair for pair in pairs if pair[0] == one]
        begin = bounds[one][0] + 36 + 20 * outgoing.index((one, other))
        end, colour = bounds[other][0] + 10, LAYERS[other].colour
        line = f"M{BAND_WIDTH + 2},{begin:.0f} H{lane - 8} q8,0 8,8 V{end - 8:.0f} q0,8 -8,8 H{BAND_WIDTH + 8}"
        parts.append(_arrow(line, BAND_WIDTH + 2, end, 180, colour))
        parts.append(_text(BAND_WIDTH + 5, begin - 3, str(number[one, other]), "small", colour))
    return parts
