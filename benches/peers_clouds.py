#!/usr/bin/env python3
"""Other registrations of raw clouds beside `flashreg bench clouds`, on the same pairs.

    pip install kiss-matcher==1.0.2 open3d small_gicp numpy
    flashreg bench clouds FOLDER --backend cpu --json ours.json
    benches/peers_clouds.py FOLDER "flashreg, CPU=ours.json" [...] [--json FILE]

Prints a table in Markdown: poses that are right by the bounds in truth.json, their mean errors, how long a pair takes (median;
points in memory to pose), and pair by pair what each was off by. Peers, with voxels of 0.05 m indoors and 0.3 m
outdoors (`--voxel INDOOR OUTDOOR`): KISS-Matcher as it comes; the same and then small_gicp (GICP) from its pose; Open3D's
FPFH (radius of 5 voxels), mutual matches, RANSAC (1.5 voxels, 100,000 samples, confidence 0.999), then ICP to planes;
small_gicp by itself, which needs a guess and gets none (identity). They always answer: where flashreg refuses, theirs count as
answers too.
"""

import argparse
import json
import os
import statistics
import time

import kiss_matcher
import numpy as np
import open3d
import small_gicp


def points(path):
    return np.asarray(open3d.io.read_point_cloud(path).points)


def kiss(source, target, voxel):
    matcher = kiss_matcher.KISSMatcher(kiss_matcher.KISSMatcherConfig(voxel))
    found = matcher.estimate(source, target)
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = found.rotation, np.ravel(found.translation)
    return pose


def gicp(source, target, voxel, guess=np.eye(4)):
    options = {"downsampling_resolution": voxel, "max_correspondence_distance": 4 * voxel}
    found = small_gicp.align(target, source, guess, num_threads=os.cpu_count(), **options)
    return found.T_target_source


def kiss_gicp(source, target, voxel):
    return gicp(source, target, voxel, kiss(source, target, voxel))


def ransac(source, target, voxel):
    registration = open3d.pipelines.registration
    near = lambda radius, most: open3d.geometry.KDTreeSearchParamHybrid(radius * voxel, most)
    clouds, features = [], []
    for cloud in (source, target):
        cloud = open3d.geometry.PointCloud(open3d.utility.Vector3dVector(cloud)).voxel_down_sample(voxel)
        cloud.estimate_normals(near(2, 30))
        cloud.orient_normals_towards_camera_location(np.zeros(3))
        clouds.append(cloud)
        features.append(registration.compute_fpfh_feature(cloud, near(5, 100)))
    found = registration.registration_ransac_based_on_feature_matching(
        *clouds,
        *features,
        True,
        1.5 * voxel,
        registration.TransformationEstimationPointToPoint(False),
        3,
        [
            registration.CorrespondenceCheckerBasedOnEdgeLength(0.9),
            registration.CorrespondenceCheckerBasedOnDistance(1.5 * voxel),
        ],
        registration.RANSACConvergenceCriteria(100_000, 0.999),
    )
    to_planes = registration.TransformationEstimationPointToPlane()
    return registration.registration_icp(*clouds, 1.5 * voxel, found.transformation, to_planes).transformation


PEERS = {
    "KISS-Matcher": kiss,
    "KISS-Matcher, GICP": kiss_gicp,
    "Open3D RANSAC, ICP": ransac,
    "small_gicp from identity": gicp,
}


def errors(pose, truth):
    """Degrees and metres."""
    cosine = (np.trace(pose[:3, :3] @ truth[:3, :3].T) - 1) / 2
    turn = np.degrees(np.arccos(np.clip(cosine, -1, 1)))
    return float(turn), float(np.linalg.norm(pose[:3, 3] - truth[:3, 3]))


def of_peer(align, folder, truths, voxels, repeat):
    rows = {}
    for name, facts in truths.items():
        source, target = (points(os.path.join(folder, name, file)) for file in ("src.ply", "dst.ply"))
        times = []
        for _ in range(repeat):
            open3d.utility.random.seed(0)
            start = time.perf_counter()
            pose = align(source, target, voxels[facts["outdoor"]])
            times.append(1e3 * (time.perf_counter() - start))
        turn, shift = errors(pose, np.loadtxt(os.path.join(folder, name, "gt.txt")))
        right = turn < facts["max_rotation_deg"] and shift < facts["max_translation_m"]
        rows[name] = {"re_deg": turn, "te_m": shift, "right": right, "ms": statistics.median(times)}
    return rows


def of_ours(path):
    with open(path) as file:
        report = json.load(file)
    return {pair["pair"]: pair for pair in report["pairs"] if not pair["strangers"]}


def line(name, rows):
    right = [row for row in rows.values() if row["right"]]
    mean = lambda key: statistics.mean(row[key] for row in right) if right else float("nan")
    median = statistics.median(row["ms"] for row in rows.values())
    refused = sum(row.get("status", "ok") != "ok" for row in rows.values())
    wrong = sum(row.get("status", "ok") == "ok" and not row["right"] for row in rows.values())
    trusted = sum(row.get("status", "ok") == "ok" and row["right"] for row in rows.values())
    errors = f"{mean('re_deg'):.2f} deg, {100 * mean('te_m'):.1f} cm"
    print(f"| {name} | {len(right)}/{len(rows)} | {trusted} | {wrong} | {refused} | {errors} | {median:.0f} |")


def cell(row):
    if row is None or row["re_deg"] is None:
        return "none"
    text = f"{row['re_deg']:.2f} deg {100 * row['te_m']:.0f} cm"
    text = text if row["right"] else f"wrong: {text}"
    return text if row.get("status", "ok") == "ok" else f"{row['status']} ({text})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER")
    parser.add_argument("ours", nargs="*", metavar="NAME=FILE.json")
    parser.add_argument("--voxel", type=float, nargs=2, default=[0.05, 0.3], metavar=("INDOOR", "OUTDOOR"))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    with open(os.path.join(options.folder, "truth.json")) as file:
        truths = {name: facts for name, facts in json.load(file).items() if facts["clouds"]}
    tables = {name: of_ours(path) for name, path in (word.split("=", 1) for word in options.ours)}
    for name, align in PEERS.items():
        tables[name] = of_peer(align, options.folder, truths, options.voxel, options.repeat)
    print("| solver | right | right and accepted | wrong and accepted | refused | errors of the right | ms |")
    print("|---|---|---|---|---|---|---|")
    for name, rows in tables.items():
        line(name, rows)
    print(f"\n| pair | {' | '.join(tables)} |")
    print("|---" * (len(tables) + 1) + "|")
    for name in truths:
        print(f"| {name} | {' | '.join(cell(rows.get(name)) for rows in tables.values())} |")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(tables, file)


if __name__ == "__main__":
    main()
