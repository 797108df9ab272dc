//! Pixels matched with points of a map.

use super::{
    any_pose, between_logs, draw, median, noisy, turn, Kind, Pinhole, PointMatch, Random, Sights, ROOM,
    STREET,
};
use crate::geometry::{Point, Rigid, Vector};
use crate::simulate::random::Purpose;

/// Matches of a hard kind, where the kind does not say otherwise.
const N: usize = 200;

/// `n` points anywhere in the view, in a room or a street by turns; a share of the matches is wrong.
pub fn planted(seed: u64, index: u64, n: usize, outliers: f64) -> Sights<PointMatch> {
    let random = &mut Random::new(seed, Purpose::Sights, index);
    let camera = Pinhole::VGA;
    let depth = if index.is_multiple_of(2) { ROOM } else { STREET };
    let points = in_view(random, &camera, n, depth);
    let mut sights = seen(random, camera, points);
    spoil(random, &mut sights, outliers);
    sights
}

/// Points of the optical frame all over the image.
fn in_view(random: &mut Random, camera: &Pinhole, n: usize, depth: [f64; 2]) -> Vec<Point> {
    let one = |_| {
        let pixel = camera.anywhere(random);
        camera.point(pixel, depth, random)
    };
    (0..n).map(one).collect()
}

/// The view of points of the optical frame, with noise, all matched rightly.
fn seen(random: &mut Random, camera: Pinhole, points: Vec<Point>) -> Sights<PointMatch> {
    let pose = any_pose(random);
    let matches = points.iter().zip(0..).map(|(p, id)| {
        let pixel = noisy(camera.pixel(p), random);
        PointMatch { pixel, landmark: pose * p, id, right: true }
    });
    let matches = matches.collect();
    Sights { camera, matches, truth: Some(pose), depth: median(points.iter().map(|p| p.z)) }
}

/// Makes a share of the matches wrong, by turns: the landmark of another one, or any pixel. Then shuffles.
fn spoil(random: &mut Random, sights: &mut Sights<PointMatch>, share: f64) {
    let rows = &mut sights.matches;
    let wrong = (share * rows.len() as f64).round() as usize;
    let n = rows.len();
    random.shuffle_front(rows, n);
    let landmarks: Vec<(u32, Point)> = rows.iter().map(|m| (m.id, m.landmark)).collect();
    for (i, m) in rows.iter_mut().enumerate().take(wrong) {
        m.right = false;
        if i % 2 == 0 {
            let other = (i + 1 + random.below(n.saturating_sub(1))) % n.max(1);
            (m.id, m.landmark) = landmarks[other];
        } else {
            m.pixel = sights.camera.anywhere(random);
        }
    }
    random.shuffle_front(rows, n);
}

/// The same, of points of the optical frame; every other instance has 30 % wrong matches.
fn mixed(random: &mut Random, points: Vec<Point>) -> Sights<PointMatch> {
    let mut sights = seen(random, Pinhole::VGA, points);
    let share = if random.chance(0.5) { 0.3 } else { 0.0 };
    spoil(random, &mut sights, share);
    sights
}

/// No pose follows from it.
fn open(sights: Sights<PointMatch>) -> Sights<PointMatch> {
    Sights { truth: None, ..sights }
}

/// Where the rays of random pixels meet a plane: a point of it and its normal.
fn in_plane(random: &mut Random, point: Vector, normal: Vector) -> Vec<Point> {
    let camera = Pinhole::VGA;
    draw(N, || {
        let ray = camera.ray(camera.anywhere(random));
        let depth = normal.dot(&point) / normal.dot(&ray);
        (0.3..100.0).contains(&depth).then(|| Point::from(ray * depth))
    })
}

fn plane(random: &mut Random) -> Sights<PointMatch> {
    let tilt =
        turn([0.0, 0.0, 1.0], random.between(-3.1, 3.1)) * turn([1.0, 0.0, 0.0], random.between(0.1, 1.2));
    let point = Vector::z() * random.between(2.0, 10.0);
    let points = in_plane(random, point, tilt * Vector::z());
    mixed(random, points)
}

fn plane_frontal(random: &mut Random) -> Sights<PointMatch> {
    let point = Vector::z() * random.between(2.0, 30.0);
    let points = in_plane(random, point, Vector::z());
    mixed(random, points)
}

fn line(random: &mut Random) -> Sights<PointMatch> {
    let camera = Pinhole::VGA;
    let start = camera.point(camera.anywhere(random), ROOM, random);
    let way = random.direction();
    let points = draw(N, || {
        let p = start + way * random.between(-5.0, 5.0);
        camera.project(&p).map(|_| p)
    });
    open(mixed(random, points))
}

fn bearings_on_line(random: &mut Random) -> Sights<PointMatch> {
    let camera = Pinhole::VGA;
    let [from, to] = [0; 2].map(|_| camera.anywhere(random));
    let one = |_| {
        let share = random.unit();
        let pixel = [0, 1].map(|i| from[i] + share * (to[i] - from[i]));
        camera.point(pixel, ROOM, random)
    };
    let points = (0..N).map(one).collect();
    mixed(random, points)
}

fn too_few(random: &mut Random) -> Sights<PointMatch> {
    let n = random.below(3);
    let points = in_view(random, &Pinhole::VGA, n, ROOM);
    open(seen(random, Pinhole::VGA, points))
}

fn handful(random: &mut Random) -> Sights<PointMatch> {
    let n = 3 + random.below(10);
    let points = in_view(random, &Pinhole::VGA, n, ROOM);
    seen(random, Pinhole::VGA, points)
}

fn duplicated(random: &mut Random) -> Sights<PointMatch> {
    let points = in_view(random, &Pinhole::VGA, 3, ROOM);
    let sights = seen(random, Pinhole::VGA, points);
    let matches = sights.matches.iter().copied().cycle().take(150).collect();
    open(Sights { matches, ..sights })
}

fn clusters(random: &mut Random) -> Sights<PointMatch> {
    let hearts = in_view(random, &Pinhole::VGA, 3, ROOM);
    let points = (0..150).map(|i| hearts[i % 3] + random.direction() * 0.01).collect();
    mixed(random, points)
}

fn behind(random: &mut Random) -> Sights<PointMatch> {
    let points = in_view(random, &Pinhole::VGA, N, ROOM);
    open(mixed(random, points.iter().map(|p| -p).collect()))
}

/// The camera is believed to be another one than it is.
fn believed(random: &mut Random, truth: Pinhole, belief: Pinhole) -> Sights<PointMatch> {
    let points = draw(N, || {
        let p = truth.point(truth.anywhere(random), ROOM, random);
        truth.project(&p).map(|_| p)
    });
    let mut sights = seen(random, truth, points);
    let share = if random.chance(0.5) { 0.3 } else { 0.0 };
    spoil(random, &mut sights, share);
    Sights { camera: belief, ..sights }
}

/// The focal length is off by a share, to one side or the other.
fn focal_off(random: &mut Random, share: f64) -> Sights<PointMatch> {
    let factor = if random.chance(0.5) { 1.0 + share } else { 1.0 - share };
    believed(random, Pinhole::VGA, Pinhole { focal: factor * Pinhole::VGA.focal, ..Pinhole::VGA })
}

fn focal_5(random: &mut Random) -> Sights<PointMatch> {
    focal_off(random, 0.05)
}

fn focal_10(random: &mut Random) -> Sights<PointMatch> {
    focal_off(random, 0.1)
}

fn focal_30(random: &mut Random) -> Sights<PointMatch> {
    focal_off(random, 0.3)
}

fn center_off(random: &mut Random) -> Sights<PointMatch> {
    let (sin, cos) = libm::sincos(random.between(-3.1, 3.1));
    let [x, y] = Pinhole::VGA.center;
    let belief = Pinhole { center: [x + 32.0 * cos, y + 32.0 * sin], ..Pinhole::VGA };
    believed(random, Pinhole::VGA, belief)
}

fn distortion_ignored(random: &mut Random) -> Sights<PointMatch> {
    let k1 = if random.chance(0.5) { -0.3 } else { -0.05 };
    believed(random, Pinhole { k1, ..Pinhole::VGA }, Pinhole::VGA)
}

fn mirrored(random: &mut Random) -> Sights<PointMatch> {
    let points = in_view(random, &Pinhole::VGA, N, ROOM);
    let mut sights = mixed(random, points);
    sights.matches.iter_mut().for_each(|m| m.landmark.x = -m.landmark.x);
    open(sights)
}

fn random_matches(random: &mut Random) -> Sights<PointMatch> {
    let points = in_view(random, &Pinhole::VGA, N, ROOM);
    let mut sights = seen(random, Pinhole::VGA, points);
    sights.matches.iter_mut().for_each(|m| m.pixel = Pinhole::VGA.anywhere(random));
    open(sights)
}

fn far(random: &mut Random) -> Sights<PointMatch> {
    let points = in_view(random, &Pinhole::VGA, N, [1e5, 1e6]);
    mixed(random, points)
}

fn one_point(random: &mut Random) -> Sights<PointMatch> {
    let points = in_view(random, &Pinhole::VGA, N, ROOM);
    let mut sights = seen(random, Pinhole::VGA, points);
    let (id, landmark) = (sights.matches[0].id, sights.matches[0].landmark);
    sights.matches.iter_mut().for_each(|m| (m.id, m.landmark) = (id, landmark));
    open(sights)
}

fn one_pixel(random: &mut Random) -> Sights<PointMatch> {
    let points = in_view(random, &Pinhole::VGA, N, ROOM);
    let mut sights = seen(random, Pinhole::VGA, points);
    let pixel = Pinhole::VGA.anywhere(random);
    sights.matches.iter_mut().for_each(|m| m.pixel = pixel);
    open(sights)
}

fn scaled(random: &mut Random) -> Sights<PointMatch> {
    let points = in_view(random, &Pinhole::VGA, N, ROOM);
    let mut sights = mixed(random, points);
    let factor = between_logs([0.2, 5.0], random);
    sights.matches.iter_mut().for_each(|m| m.landmark *= factor);
    if let Some(truth) = &mut sights.truth {
        truth.translation.vector *= factor;
    }
    Sights { depth: sights.depth * factor, ..sights }
}

fn two_places(random: &mut Random) -> Sights<PointMatch> {
    let points = in_view(random, &Pinhole::VGA, N, ROOM);
    let mut sights = mixed(random, points);
    // The map has all of it twice.
    let elsewhere = any_pose(random);
    sights.matches.iter_mut().step_by(2).for_each(|m| m.landmark = elsewhere * m.landmark);
    open(sights)
}

/// Points of a cylinder on whose surface the camera is, at heights above it: the axis and the way to it.
fn on_cylinder(random: &mut Random, height: [f64; 2]) -> Vec<Point> {
    let camera = Pinhole::VGA;
    let tilt =
        turn([0.0, 0.0, 1.0], random.between(-3.1, 3.1)) * turn([1.0, 0.0, 0.0], random.between(0.0, 0.4));
    let radius = random.between(0.5, 3.0);
    draw(N, || {
        let (sin, cos) = libm::sincos(random.between(-3.1, 3.1));
        let p =
            Point::from(tilt * Vector::new(radius * (1.0 - cos), radius * sin, between_logs(height, random)));
        camera.project(&p).map(|_| p)
    })
}

fn circle(random: &mut Random) -> Sights<PointMatch> {
    let height = random.between(3.0, 8.0);
    let points = on_cylinder(random, [height, height]);
    mixed(random, points)
}

fn cylinder(random: &mut Random) -> Sights<PointMatch> {
    let points = on_cylinder(random, ROOM);
    mixed(random, points)
}

fn patch(random: &mut Random) -> Sights<PointMatch> {
    let camera = Pinhole::VGA;
    let [x, y] = camera.anywhere(random);
    let one =
        |_| camera.point([x + random.between(-10.0, 10.0), y + random.between(-10.0, 10.0)], ROOM, random);
    let points = (0..N).map(one).collect();
    mixed(random, points)
}

fn drowned(random: &mut Random) -> Sights<PointMatch> {
    let points = in_view(random, &Pinhole::VGA, N, ROOM);
    let mut sights = seen(random, Pinhole::VGA, points);
    let share = random.between(0.93, 0.99);
    spoil(random, &mut sights, share);
    sights
}

/// Where coordinates are as large as UTM's.
fn large_coordinates(random: &mut Random) -> Sights<PointMatch> {
    let points = in_view(random, &Pinhole::VGA, N, ROOM);
    let mut sights = mixed(random, points);
    let away = Vector::new(5e5, 5.4e6, 300.0);
    sights.matches.iter_mut().for_each(|m| m.landmark += away);
    let there = |t: Rigid| Rigid::from_parts((t.translation.vector + away).into(), t.rotation);
    Sights { truth: sights.truth.map(there), ..sights }
}

/// All kinds.
pub const KINDS: &[Kind<PointMatch>] = &[
    Kind { name: "plane", meaning: "points in a plane; solvable", make: plane },
    Kind { name: "plane_frontal", meaning: "in a plane seen at right angles; solvable", make: plane_frontal },
    Kind { name: "line", meaning: "points on a line: a turn about it is open", make: line },
    Kind { name: "bearings_on_line", meaning: "pixels on a line; hardly solvable", make: bearings_on_line },
    Kind { name: "too_few", meaning: "0 to 2 matches", make: too_few },
    Kind { name: "handful", meaning: "3 to 12 matches, all right", make: handful },
    Kind { name: "duplicated", meaning: "3 matches, 50 times each", make: duplicated },
    Kind { name: "clusters", meaning: "50 points each within 1 cm of 3", make: clusters },
    Kind { name: "behind", meaning: "points mirrored behind the camera", make: behind },
    Kind { name: "focal_5", meaning: "focal length 5 % off", make: focal_5 },
    Kind { name: "focal_10", meaning: "focal length 10 % off", make: focal_10 },
    Kind { name: "focal_30", meaning: "focal length 30 % off", make: focal_30 },
    Kind { name: "center_off", meaning: "principal point 32 px off", make: center_off },
    Kind { name: "distortion_ignored", meaning: "k1 of -0.3 or -0.05 ignored", make: distortion_ignored },
    Kind { name: "mirrored", meaning: "the map is mirrored", make: mirrored },
    Kind { name: "random", meaning: "any pixel with any point", make: random_matches },
    Kind { name: "far", meaning: "points 100 km away: the position is open", make: far },
    Kind { name: "one_point", meaning: "all pixels matched with one point", make: one_point },
    Kind { name: "one_pixel", meaning: "all points matched with one pixel", make: one_pixel },
    Kind { name: "scaled", meaning: "the map has another scale: cannot be seen, right in it", make: scaled },
    Kind { name: "two_places", meaning: "the map has it twice, half of the matches each", make: two_places },
    Kind { name: "circle", meaning: "points on a circle, camera on the cylinder over it", make: circle },
    Kind { name: "cylinder", meaning: "points and camera on a cylinder", make: cylinder },
    Kind { name: "patch", meaning: "all within 20 x 20 px", make: patch },
    Kind { name: "drowned", meaning: "93 to 99 % wrong matches", make: drowned },
    Kind { name: "large_coordinates", meaning: "a map in UTM; solvable", make: large_coordinates },
];
