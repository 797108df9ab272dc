#!/usr/bin/env python3
"""Other solvers beside `flashreg hc`: PoseLib on the same random instances, PHCpack on the same systems.

    pip install poselib numpy; apt install phcpack
    benches/peers.py [--flashreg target/release/flashreg] poselib [--instances 1000] [--backend cuda]
    benches/peers.py [--flashreg target/release/flashreg] phcpack [alea6 cyclic5 ...]

PoseLib is called from Python, a call for each instance: what the call itself costs is measured with a
solver that has nothing to do, and given beside it.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time

import numpy as np

SAME = 1e-6
# PHCpack gives roots as it found them; where they are badly conditioned they are less exact.
SAME_ROOT = 1e-5


def flashreg(options, *words, threads=None):
    environment = dict(os.environ, **({"RAYON_NUM_THREADS": str(threads)} if threads else {}))
    command = [options.flashreg, "hc", *map(str, words)]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


def p3p(poselib, instance):
    """The call, and whether one of its poses is the true one."""
    numbers = np.reshape(instance["parameters"], (6, 3))
    rays, points = numbers[:3], numbers[3:]

    def right(poses):
        depths = [np.linalg.norm(points @ p.R.T + p.t, axis=1) for p in poses]
        return any(np.allclose(d, instance["near"], rtol=SAME) for d in depths)

    return lambda: poselib.p3p(rays, points), right


def five_point(poselib, instance):
    a, b, c, d = np.reshape(instance["parameters"], (5, 4)).T
    first, second = (np.stack([x, y, np.ones(5)], 1) for x, y in [(a, b), (c, d)])
    first, second = (rays / np.linalg.norm(rays, axis=1, keepdims=True) for rays in (first, second))
    tx, ty, qx, qy, qz, qw = instance["near"]
    turn = np.array([qw, qx, qy, qz]) / np.linalg.norm([qw, qx, qy, qz])
    along = np.array([tx, ty, 1.0]) / np.linalg.norm([tx, ty, 1.0])

    def right(poses):
        turned = [abs(abs(np.dot(p.q, turn)) - 1) < SAME for p in poses]
        moved = [np.linalg.norm(np.cross(p.t / np.linalg.norm(p.t), along)) < SAME for p in poses]
        return any(t and m for t, m in zip(turned, moved))

    return lambda: poselib.relpose_5pt(first, second), right


def timed(calls):
    """Microseconds of a call: the least of five times through all of them; and what the last gave."""
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        results = [call() for call in calls]
        times.append((time.perf_counter() - begin) / len(calls) * 1e6)
    return min(times), results


def beside_poselib(options):
    import poselib

    print("problem      solver                                us/instance   true found")
    for name, prepare in [("p3p", p3p), ("five_point", five_point)]:
        lines = flashreg(options, "instances", name, "--instances", options.instances).splitlines()
        prepared = [prepare(poselib, json.loads(line)) for line in lines]
        empty, _ = timed([lambda: poselib.CameraPose()] * len(prepared))
        spent, results = timed([call for call, _ in prepared])
        right = sum(is_right(poses) for (_, is_right), poses in zip(prepared, results))
        row = f"{name:12} {{:36}} {{:12.2f}}   {{}}/{len(prepared)}"
        print(row.format(f"PoseLib, Python (empty call {empty:.2f})", spent, right))
        count = ["--instances", options.instances, "--batch", options.instances, "--json"]
        runs = [(f"ours, CPU, {n} threads", ["--backend", "cpu"], n) for n in (1, os.cpu_count())]
        runs += [("ours, GPU", ["--backend", "cuda"], None)] if options.backend == "cuda" else []
        for what, backend, threads in runs:
            [found] = json.loads(flashreg(options, "bench", name, *count, *backend, threads=threads))["problems"]
            print(row.format(f"{what}, one by one", found["ms"] * 1e3, found["true_found"]))
            batch = found["batch"]["ms"] * 1e3 / found["batch"]["instances"]
            print(row.format(f"{what}, in one call", batch, found["true_found"]))


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
        if error < 1e-8 and condition > 1e-14:
            roots.append([values[v] for v in unknowns])
    return np.array(roots)


def distinct(roots):
    kept = np.empty((0, roots.shape[1]), complex)
    for root in roots:
        if not len(kept) or np.abs(kept - root).max(1).min() > SAME_ROOT * (1 + np.abs(root).max()):
            kept = np.vstack([kept, root])
    return kept


def beside_phcpack(options):
    print("system      PHCpack   s      ours   s       in both")
    for name in options.systems or ["alea6", "cyclic7", "katsura10", "eco12"]:
        answer = json.loads(flashreg(options, "solve", name, "--json"))
        ok = [root["root"] for root in answer["roots"] if root["status"] == "ok"]
        ours = distinct(np.array(ok) @ np.array([1, 1j]))
        unknowns, equations = form(name)
        begin = time.perf_counter()
        theirs = distinct(phc(unknowns, equations))
        if len(theirs) < len(ours):
            # Polyhedral homotopies do not see roots with zeros.
            once_more, by = shifted(unknowns, equations)
            theirs = distinct(np.vstack([theirs, phc(unknowns, once_more) - by]))
        spent = time.perf_counter() - begin
        both = sum(np.abs(theirs - root).max(1).min() < SAME_ROOT * (1 + np.abs(root).max()) for root in ours)
        print(f"{name:10} {len(theirs):8} {spent:6.1f} {len(ours):7} {answer['ms'] / 1e3:6.3f} {both:9}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flashreg", default="target/release/flashreg")
    parts = parser.add_subparsers(required=True)
    part = parts.add_parser("poselib")
    part.add_argument("--instances", type=int, default=1000)
    part.add_argument("--backend", choices=["cpu", "cuda"], default="cpu")
    part.set_defaults(run=beside_poselib)
    part = parts.add_parser("phcpack")
    part.add_argument("systems", nargs="*")
    part.set_defaults(run=beside_phcpack)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
