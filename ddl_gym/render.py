"""What does a cluster look like at one moment? A picture and a text of one simulator (a kernel World row)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddl_gym.kernel import NONE, QUEUED, World

# Free, MACHINE, RACK, NETWORK; distinguishable without red and green.
COLOURS = ((225, 225, 225), (0, 114, 178), (230, 159, 0), (213, 94, 0))
NAMES = ("free", "machine tier", "rack tier", "network tier")
_SYMBOLS = ".123"
_TEXT_RACKS = 16  # racks drawn GPU by GPU in a text


def gpu_states(w: World) -> NDArray[np.int64]:
    """(M, G) what each GPU does: 0 free, 1 + tier of the job that holds it. GPUs of a machine are alike, so jobs lie side by side."""
    rules = w.rules[0]
    states = np.zeros((len(w.machines), int(rules.gpus_per_machine)), np.int64)
    used = np.zeros(len(w.machines), np.int64)
    for j in w.heap[: int(w.clock[0].running)]:
        p = int(w.jobs[j].piece)
        while p != NONE:
            machine, gpus = int(w.pieces[p].machine), int(w.pieces[p].gpus)
            states[machine, used[machine] : used[machine] + gpus] = 1 + w.jobs[j].tier
            used[machine] += gpus
            p = int(w.pieces[p].next_piece)
    return states


def queue_by_class(w: World) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(C,) jobs and (C,) GPUs that wait, by timer class."""
    jobs = w.jobs[: int(w.rules[0].jobs)]
    waiting = jobs[jobs["status"] == QUEUED]
    classes = w.buckets["timer_class"][waiting["bucket"]]
    count = np.bincount(classes, minlength=len(w.timers))
    gpus = np.bincount(classes, waiting["gpus"], minlength=len(w.timers)).astype(np.int64)
    return count, gpus


def _headline(w: World) -> str:
    rules, clock = w.rules[0], w.clock[0]
    busy = 1 - clock.free / rules.gpus
    return (
        f"{clock.now / 3600:.2f} h   {busy:.0%} of {rules.gpus} GPUs busy   {clock.running} running   {clock.queued} queued   "
        f"{clock.finished} of {rules.jobs} finished"
    )


def render_ansi(w: World) -> str:
    """A text: a line a rack with a character a GPU (. free, 1 machine, 2 rack, 3 network tier), then queue and timers by class."""
    rules = w.rules[0]
    states = gpu_states(w).reshape(int(rules.racks), int(rules.machines_per_rack), -1)
    lines = [_headline(w)]
    for rack, machines in enumerate(states[:_TEXT_RACKS]):
        drawn = " ".join("".join(_SYMBOLS[state] for state in machine) for machine in machines)
        lines.append(f"rack {rack:3d}  {drawn}")
    if len(states) > _TEXT_RACKS:
        lines.append(f"... and {len(states) - _TEXT_RACKS} more racks")
    lines.append("class  queued  GPUs   machine timer      rack timer")
    jobs, gpus = queue_by_class(w)
    for c in range(len(w.timers)):
        if jobs[c] > 0 or len(w.timers) <= 8:
            machine_s, rack_s = w.timers["timer_s"][c]
            lines.append(f"{c:5d}  {jobs[c]:6d}  {gpus[c]:4d}  {machine_s:12.0f} s  {rack_s:12.0f} s")
    return "\n".join(lines)


def render_rgb(w: World, width: int = 960, height: int = 640) -> NDArray[np.uint8]:
    """A picture (height, width, 3): GPUs by rack and machine, the queue by class, the timers by class."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rules = w.rules[0]
    figure = Figure(figsize=(width / 100, height / 100), dpi=100)
    canvas: Any = FigureCanvasAgg(figure)
    figure.suptitle(_headline(w), fontsize=11)
    cluster = figure.add_axes((0.06, 0.10, 0.56, 0.80))
    cluster.imshow(_cluster_image(w), interpolation="nearest", aspect="auto", extent=(0, 1, int(rules.racks), 0))
    cluster.set_xticks([])
    cluster.set_ylabel("rack")
    cluster.set_xlabel("machines of a rack, side by side")
    for number, (name, colour) in enumerate(zip(NAMES, COLOURS, strict=True)):
        figure.text(0.06 + 0.14 * number, 0.02, "\u25a0 " + name, color=np.array(colour) / 300, fontsize=10)
    jobs, gpus = queue_by_class(w)
    classes = np.arange(len(jobs))
    queue = figure.add_axes((0.70, 0.58, 0.28, 0.32))
    queue.bar(classes, gpus, color="0.45")
    queue.set_title("GPUs that queued jobs ask for, by class", fontsize=9)
    queue.set_ylim(0, max(1, int(rules.gpus), int(gpus.max(initial=0))))
    timers = figure.add_axes((0.70, 0.12, 0.28, 0.32))
    timers_s = np.clip(np.array(w.timers["timer_s"]), 1.0, 1e6)
    for tier, (marker, name) in enumerate((("o", "machine"), ("s", "rack"))):
        timers.plot(
            classes, timers_s[:, tier], marker, color=np.array(COLOURS[1 + tier]) / 255, label=name, markersize=5
        )
    timers.set_yscale("log")
    timers.set_ylim(0.7, 2e6)
    timers.set_title("timers in force by class, s (1e6: or more)", fontsize=9)
    timers.legend(fontsize=8, loc="lower right")
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _cluster_image(w: World) -> NDArray[np.uint8]:
    """A pixel block a GPU: racks below one another, machines of a rack side by side with a gap."""
    rules = w.rules[0]
    racks, machines, gpus = int(rules.racks), int(rules.machines_per_rack), int(rules.gpus_per_machine)
    palette: Any = np.array(COLOURS, np.uint8)
    columns = int(np.ceil(np.sqrt(gpus)))
    rows = -(-gpus // columns)
    size = 4
    image = np.full((racks, rows * size + 2, machines, columns * size + 2, 3), 255, np.uint8)
    states = gpu_states(w).reshape(racks, machines, gpus)
    for gpu in range(gpus):
        top, left = 1 + gpu // columns * size, 1 + gpu % columns * size
        block = palette[states[:, :, gpu]]
        image[:, top : top + size - 1, :, left : left + size - 1] = block[:, None, :, None]
    return image.reshape(racks * (rows * size + 2), machines * (columns * size + 2), 3)
