#!/usr/bin/env python3
"""Other solvers beside `flashreg hc`: dedicated ones of PoseLib and OpenCV on the same random instances, PHCpack
on the same systems.

    pip install poselib opencv-python-headless numpy sympy; apt install phcpack
    flashreg hc bench --instances 20 --json > cpu.json, with --backend cuda > gpu.json
    benches/peers.py [--flashreg target/release/flashreg] table cpu.json [gpu.json] [--instances 300]
    benches/peers.py [--flashreg target/release/flashreg] exactness [p3p ...] [--instances 10000] [--seed 1]
    benches/peers.py [--flashreg target/release/flashreg] phcpack [alea6 cyclic5 ...]

`table` prints milliseconds of an instance by itself as a table in Markdown: ours from the files, and those of
dedicated solvers measured here. They are called from Python, a call for each instance: what the call itself
costs is measured with a solver that has nothing to do, and told below the table. `exactness` prints how often the
true solution is found to 1e-6 (rad; relative translation or its direction; relative focal length): by the closed
form, by homotopy and by PoseLib, and the condition of what was missed.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time

import cv2
import mpmath
import numpy as np
import poselib
import sympy

SAME = 1e-6
# PHCpack gives roots as it found them; where they are badly conditioned they are less exact.
SAME_ROOT = 1e-5


def flashreg(options, *words):
    command = [options.flashreg, "hc", *map(str, words)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def spatial(values):
    return np.reshape(values, (-1, 3))


def rays(values):
    """Image points as unit rays."""
    points = np.reshape(values, (-1, 2))
    return unit(np.hstack([points, np.ones((len(points), 1))]))


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def pose(truth):
    return np.array(truth["poses"][0]["rotation"]), np.array(truth["poses"][0]["translation"])


def is_pose(truth, turn, shift, tolerance=SAME):
    rotation, translation = pose(truth)
    close = np.abs(rotation - turn).max() < tolerance
    return close and np.linalg.norm(translation - shift) < tolerance * (1 + np.linalg.norm(translation))


def is_relative(truth, turn, shift):
    """The translation up to its length and sign."""
    rotation, translation = pose(truth)
    return np.abs(rotation - turn).max() < SAME and np.linalg.norm(np.cross(unit(translation), unit(shift))) < SAME


# A solver for an instance: the call, and whether what it gave has the true solution.


def p3p(instance):
    numbers, truth = spatial(instance["measured"]), instance["truth"]
    call = lambda: poselib.p3p(numbers[:3], numbers[3:])
    return call, lambda poses: any(is_pose(truth, p.R, p.t) for p in poses)


def p3p_of_images(instance):
    images, points = rays(instance["measured"][:6]), spatial(instance["measured"][6:])
    call = lambda: poselib.p3p(images, points)
    return call, lambda poses: any(is_pose(instance["truth"], p.R, p.t) for p in poses)


def sqpnp(instance):
    n = len(instance["measured"]) // 5
    images, points = np.reshape(instance["measured"][: 2 * n], (n, 2)), spatial(instance["measured"][2 * n :])
    call = lambda: cv2.solvePnP(points, images, np.eye(3), None, flags=cv2.SOLVEPNP_SQPNP)
    # The cost is another one: noise of 1e-3 moves both minima apart.
    return call, lambda found: is_pose(instance["truth"], cv2.Rodrigues(found[1])[0], found[2][:, 0], 2e-2)


def up2p(instance):
    measured = instance["measured"]
    # Vertical is the y axis there.
    points, images = spatial(measured[:6])[:, [1, 2, 0]], rays(measured[12:16])[:, [1, 2, 0]]
    return lambda: poselib.up2p(images, points), None


def p4pf(instance):
    truth = instance["truth"]
    images = np.reshape(instance["measured"][:8], (4, 2))
    images = images / (1 + (truth["distortion"] or 0) * (images**2).sum(1, keepdims=True))
    points = spatial(instance["measured"][8:])

    def right(found):
        return any(is_pose(truth, p.R, p.t) and abs(f / truth["focal"] - 1) < SAME for p, f in zip(*found))

    return lambda: poselib.p4pf(images, points, True), right


def relpose_5pt(instance):
    images = np.reshape(instance["measured"], (5, 4))
    first, second = rays(images[:, :2]), rays(images[:, 2:])
    call = lambda: poselib.relpose_5pt(first, second)
    return call, lambda poses: any(is_relative(instance["truth"], p.R, p.t) for p in poses)


def shared_focal_6pt(instance):
    truth = instance["truth"]
    images = np.hstack([np.reshape(instance["measured"], (12, 2)), np.ones((12, 1))])
    first, second = np.ascontiguousarray(images[::2]), np.ascontiguousarray(images[1::2])

    def right(pairs):
        close = lambda p: abs(p.camera1.focal() / truth["focal"] - 1) < SAME
        return any(close(p) and is_relative(truth, p.pose.R, p.pose.t) for p in pairs)

    return lambda: poselib.shared_focal_relpose_6pt(first, second), right


def relpose_upright_3pt(instance):
    both = np.reshape(instance["measured"], (2, 3, 3)).transpose(0, 2, 1)
    first, second = (np.ascontiguousarray(side[:, [1, 2, 0]]) for side in both)
    back = np.eye(3)[[2, 0, 1]]
    right = lambda poses: any(is_relative(instance["truth"], back @ p.R @ back.T, back @ p.t) for p in poses)
    return lambda: poselib.relpose_upright_3pt(first, second), right


def six_points(instance, random, in_front):
    """Points in the frames of two cameras with the relative pose of the instance."""
    rotation, translation = pose(instance["truth"])
    while True:
        depth = random.uniform(2, 8, (6, 1))
        first = np.hstack([random.uniform(-0.6, 0.6, (6, 2)) * depth, depth])
        second = first @ rotation.T + translation
        if second[:, 2].min() > 0.3 or not in_front:
            return first, second


def shared_focal_relpose_6pt(instance):
    truth = instance["truth"]
    focal = np.array([truth["focal"], truth["focal"], 1])
    points = six_points(instance, np.random.default_rng(instance["seed"]), True)
    first, second = (p * focal / p[:, 2:] for p in points)

    def right(pairs):
        close = lambda p: abs(p.camera1.focal() / truth["focal"] - 1) < SAME
        return any(close(p) and is_relative(truth, p.pose.R, p.pose.t) for p in pairs)

    return lambda: poselib.shared_focal_relpose_6pt(first, second), right


def gen_relpose_6pt(instance):
    random = np.random.default_rng(instance["seed"])
    offsets = [random.normal(0, 0.5, (6, 3)) for _ in range(2)]
    points = six_points(instance, random, False)
    (p, q), (x, y) = offsets, [unit(view - offset) for view, offset in zip(points, offsets)]
    call = lambda: poselib.gen_relpose_6pt(p, x, q, y)
    return call, lambda poses: any(is_pose(instance["truth"], p.R, p.t) for p in poses)


def correct_matches(instance):
    shift, rotation = np.array(instance["measured"][:3]), spatial(instance["measured"][3:12])
    essential = np.cross(np.eye(3), shift) @ rotation
    first, second = (np.reshape(instance["measured"][k : k + 2], (1, 1, 2)) for k in (12, 14))
    right = lambda points: np.allclose(np.ravel(points), instance["near"][:4], rtol=0, atol=SAME)
    return lambda: cv2.correctMatches(essential, first, second), right


# With what it solves if that is not the same problem.
SOLVERS = {
    "p3p": (p3p, ""),
    "p3p_pose": (p3p_of_images, ""),
    "optimal_pnp": (sqpnp, "another cost, its least minimum only; true to 2e-2"),
    "pnp_cubics": (sqpnp, "another cost, its least minimum only; true to 2e-2"),
    "optimal_p4p": (up2p, "the pose from two of the points, exactly"),
    "p4p_focal_radial": (p4pf, "no distortion: has image points without it"),
    "p4p_focal": (p4pf, ""),
    "five_point": (relpose_5pt, ""),
    "five_point_depths": (relpose_5pt, ""),
    "five_point_nullspace": (relpose_5pt, ""),
    "six_point_focal": (shared_focal_6pt, ""),
    "homography_3pt": (relpose_upright_3pt, ""),
    "triangulation_2": (correct_matches, "the best root only"),
    "trifocal_focal": (shared_focal_relpose_6pt, "two views of six points"),
    "generalized_3view": (gen_relpose_6pt, "two views of six points"),
}


LABELS = {
    sqpnp: "SQPNP (OpenCV)",
    correct_matches: "correctMatches (OpenCV)",
    p3p_of_images: "p3p",
    shared_focal_6pt: "shared_focal_relpose_6pt",
}


def timed(calls):
    """Milliseconds of a call: the least of five times through all of them; and what the last gave."""
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        results = [call() for call in calls]
        times.append((time.perf_counter() - begin) / len(calls) * 1e3)
    return min(times), results


def dedicated(options, name):
    """Milliseconds, how often the true solution was found, the solver and what it solves."""
    if name not in SOLVERS:
        return ["-", "-", "-"]
    solver, what = SOLVERS[name]
    lines = flashreg(options, "instances", name, "--instances", options.instances).splitlines()
    prepared = [solver(json.loads(line)) for line in lines]
    spent, results = timed([call for call, _ in prepared])
    right = [is_right(found) for (_, is_right), found in zip(prepared, results) if is_right]
    label = LABELS.get(solver, solver.__name__)
    return [f"{spent:.4f}", f"{sum(right)}/{len(right)}" if right else "-", label + (f": {what}" if what else "")]


# Problems of which PoseLib solves the same, and those with a closed form of ours.
EXACT = ["p3p", "p3p_pose", "p4p_focal", "five_point", "six_point_focal"]
CLOSED = ["p3p", "p3p_pose", "five_point"]


def exactness(options):
    """How often the true solution is found to 1e-6, on the same instances."""
    how_many = ["--instances", options.instances, "--seed", options.seed]

    def bench(name, *way):
        (row,) = json.loads(flashreg(options, "bench", name, *how_many, *way, "--json"))["problems"]
        share = f"{100 * row['poses_right'] / row['poses']:.2f}"
        conditions = [f"{m['condition']:.0e}" if m["condition"] else "none" for m in row["misses"]]
        return share, f"{1e3 * row['ms']:.2f}", conditions

    print("| problem | closed form, % | us | homotopy, % | us | PoseLib, % | us | solver | conditions of misses |\n" + "|---" * 9 + "|")
    for name in options.problems or EXACT:
        closed = bench(name, "--closed-form") if name in CLOSED else ("-", "-", [])
        paths = bench(name)
        solver, _ = SOLVERS[name]
        lines = flashreg(options, "instances", name, *how_many).splitlines()
        prepared = [solver(json.loads(line)) for line in lines]
        spent, results = timed([call for call, _ in prepared])
        right = [is_right(found) for (_, is_right), found in zip(prepared, results)]
        theirs = [f"{100 * sum(right) / len(right):.2f}", f"{1e3 * spent:.2f}", LABELS.get(solver, solver.__name__)]
        missed = "; ".join(f"{what}: {', '.join(c[:8])}" for what, c in [("closed", closed[2]), ("homotopy", paths[2])] if c)
        print("|", " | ".join([name, *closed[:2], *paths[:2], *theirs, missed or "-"]), "|", flush=True)
    empty, _ = timed([poselib.CameraPose] * 1000)
    print(f"\nA call from Python that does nothing: {1e3 * empty:.2f} us.")


def three(value):
    """Three digits."""
    return f"{float(f'{value:.3g}'):g}"


def table(options):
    files = []
    for path in [options.cpu] + ([options.gpu] if options.gpu else []):
        with open(path, encoding="utf-8") as file:
            files.append({row["problem"]: row for row in json.load(file)["problems"]})
    cpu, gpu = files[0], files[-1] if options.gpu else {}
    print("| problem | roots | CPU ms | GPU ms | CPU / GPU | dedicated ms | true | solver |\n" + "|---" * 8 + "|")
    for name, row in cpu.items():
        device = gpu.get(name, {}).get("ms")
        ours = [three(row["ms"])]
        ours += [three(device), f"{row['ms'] / device:.1f}"] if device else ["-", "-"]
        print("|", " | ".join([name, str(row["expected"] // row["instances"]), *ours, *dedicated(options, name)]), "|")
    empty, _ = timed([poselib.CameraPose] * 1000)
    print(f"\nA call from Python that does nothing: {empty:.4f} ms.")


def form(name):
    """Unknowns and equations, written for PHCpack."""
    stem, n = re.fullmatch(r"([a-z]+)(\d+)", name).groups()
    n = int(n)
    x = [f"x{i}" for i in range(n + 1)]
    if stem == "alea":
        path = os.path.join(os.path.dirname(__file__), "../src/homotopy/problems/alea6.yaml")
        with open(path, encoding="utf-8") as file:
            equations = [line[4:].strip() for line in file if line.startswith("  - ")]
        rename = lambda m: x["abcdef".index(m[0]) + 1]
        return x[1:], [re.sub("[a-f]", rename, equation) for equation in equations]
    if stem == "cyclic":
        product = lambda i, k: "*".join(x[(i + j) % n + 1] for j in range(k))
        equations = ["+".join(product(i, k) for i in range(n)) for k in range(1, n)]
        return x[1:], [*equations, product(0, n) + "-1"]
    if stem == "eco":
        sums = ["+".join([x[k], *(f"{x[i]}*{x[i + k]}" for i in range(1, n - k))]) for k in range(1, n)]
        equations = [f"({s})*{x[n]}-{k}" for k, s in enumerate(sums, 1)]
        return x[1:], [*equations, "+".join(x[1:n]) + "+1"]
    if stem == "katsura":
        inside = lambda m: [l for l in range(-n, n + 1) if abs(m - l) <= n]
        equations = ["+".join(f"{x[abs(l)]}*{x[abs(m - l)]}" for l in inside(m)) + f"-{x[m]}" for m in range(n)]
        return x, [*equations, "+".join([x[0], *(f"2*{v}" for v in x[1:])]) + "-1"]
    sys.exit(f"no system {name}")


def shifted(unknowns, equations):
    """The same in unknowns that are larger by the numbers given back: roots with zeros have none then."""
    by = [round(0.37 * (1 + i / 7), 6) for i in range(len(unknowns))]
    moved = {v: f"({v}-{s})" for v, s in zip(unknowns, by)}
    return [re.sub(r"x\d+", lambda m: moved[m[0]], equation) for equation in equations], np.array(by)


def phc(unknowns, equations):
    """The regular roots that `phc -b` finds."""
    with tempfile.TemporaryDirectory() as folder:
        given, answer = (os.path.join(folder, name) for name in ("in", "out"))
        with open(given, "w", encoding="ascii") as file:
            # The sum that vanishes decides the order of the unknowns.
            order = "".join(f"+{v}-{v}" for v in unknowns)
            first, *rest = (f"{e};" for e in equations)
            file.write(f"{len(equations)}\n{order[1:]}+{first}\n" + "\n".join(rest) + "\n")
        subprocess.run(["phc", "-b", given, answer], check=True, capture_output=True)
        with open(answer, encoding="ascii", errors="replace") as file:
            text = file.read()
    number = r"[-+]?\d\.\d+E[-+]\d+"
    roots = []
    for block in re.split(r"\nsolution \d+ :", text[text.rindex("THE SOLUTIONS"):])[1:]:
        values = {v: complex(float(re_), float(im)) for v, re_, im in
                  re.findall(rf"^ (\w+) :\s+({number})\s+({number})", block, re.M)}
        error, condition = (float(re.search(rf"{what} :\s+({number})", block)[1]) for what in ("err", "rco"))
        # A path that stopped on its way may have a small error: its end is marked.
        if error < 1e-8 and condition > 1e-14 and "no solution" not in block:
            roots.append([values[v] for v in unknowns])
    return np.array(roots)


def distinct(roots, same=SAME_ROOT):
    kept = np.empty((0, roots.shape[1]), complex)
    for root in roots:
        if not len(kept) or np.abs(kept - root).max(1).min() > same * (1 + np.abs(root).max()):
            kept = np.vstack([kept, root])
    return kept


def refined(unknowns, equations, roots, digits=50):
    """The roots by Newton's method with so many digits; what does not come to rest is left out."""
    symbols = sympy.symbols(unknowns)
    system = sympy.Matrix([sympy.sympify(e.replace("^", "**"), rational=True) for e in equations])
    values, slopes = (sympy.lambdify([symbols], m, "mpmath") for m in (system, system.jacobian(symbols)))
    kept = []
    with mpmath.workdps(digits):
        for root in roots:
            at = mpmath.matrix([mpmath.mpc(v) for v in root])
            for _ in range(12):
                step = mpmath.lu_solve(slopes(list(at)), values(list(at)))
                at -= step
                if mpmath.norm(step, mpmath.inf) < mpmath.mpf(10) ** (8 - digits) * (1 + mpmath.norm(at, mpmath.inf)):
                    kept.append([complex(v) for v in at])
                    break
    return np.array(kept).reshape(-1, len(unknowns))


def beside_phcpack(options):
    print("system      PHCpack   s    refined      ours   s       in both")
    for name in options.systems or ["alea6", "cyclic7", "katsura10", "eco12"]:
        answer = json.loads(flashreg(options, "solve", name, "--json"))
        ok = [root["root"] for root in answer["roots"] if root["status"] == "ok"]
        ours = distinct(np.array(ok) @ np.array([1, 1j]))
        unknowns, equations = form(name)
        begin = time.perf_counter()
        given = phc(unknowns, equations)
        if len(distinct(given)) < len(ours):
            # Polyhedral homotopies do not see roots with zeros.
            once_more, by = shifted(unknowns, equations)
            given = np.vstack([given, phc(unknowns, once_more) - by])
        spent = time.perf_counter() - begin
        # The same root found twice may differ by more than its error says: told apart when it is exact.
        theirs = distinct(refined(unknowns, equations, given), 1e-10)
        both = sum(np.abs(theirs - root).max(1).min() < SAME_ROOT * (1 + np.abs(root).max()) for root in ours)
        counts = f"{len(distinct(given)):8} {spent:6.1f} {len(theirs):8}"
        print(f"{name:10} {counts} {len(ours):9} {answer['ms'] / 1e3:6.3f} {both:9}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flashreg", default="target/release/flashreg")
    parts = parser.add_subparsers(required=True)
    part = parts.add_parser("table")
    part.add_argument("cpu", metavar="CPU.json")
    part.add_argument("gpu", nargs="?", metavar="GPU.json")
    part.add_argument("--instances", type=int, default=300)
    part.set_defaults(run=table)
    part = parts.add_parser("exactness")
    part.add_argument("problems", nargs="*")
    part.add_argument("--instances", type=int, default=10000)
    part.add_argument("--seed", type=int, default=1)
    part.set_defaults(run=exactness)
    part = parts.add_parser("phcpack")
    part.add_argument("systems", nargs="*")
    part.set_defaults(run=beside_phcpack)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
