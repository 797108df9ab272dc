//! Pixels matched with those of a reference view.

use super::{
    between_logs, draw, median, noisy, small_rotation, turn, Kind, Pinhole, PixelMatch, Random, Sights, ROOM,
    STREET,
};
use crate::geometry::{Point, Rigid, Vector};
use crate::simulate::random::Purpose;
use nalgebra::Translation3;

/// Matches of a hard kind, where the kind does not say otherwise.
const N: usize = 200;
/// Largest rotation between two views, rad.
const TURN: f64 = 0.35;

/// `n` points anywhere in both views, in a room or a street by turns, baselines of 10 to 40 % of the median
/// depth; a share of the matches is wrong.
pub fn planted(seed: u64, index: u64, n: usize, outliers: f64) -> Sights<PixelMatch> {
    let random = &mut Random::new(seed, Purpose::Sights, index);
    let mut sights = common(random, n, if index.is_multiple_of(2) { ROOM } else { STREET });
    spoil(random, &mut sights, outliers);
    sights
}

/// A view displaced in any direction by a length, m.
fn displaced(random: &mut Random, length: f64) -> Rigid {
    let translation = random.direction() * length;
    Rigid::from_parts(Translation3::from(translation), small_rotation(random, TURN))
}

/// Two views of points at such depths, all matched rightly.
fn common(random: &mut Random, n: usize, depth: [f64; 2]) -> Sights<PixelMatch> {
    let camera = Pinhole::VGA;
    loop {
        let baseline = random.between(0.1, 0.4) * (depth[0] * depth[1]).sqrt();
        let pose = displaced(random, baseline);
        let sights =
            seen(random, camera, &pose, n, |random| camera.point(camera.anywhere(random), depth, random));
        if sights.matches.len() == n {
            return sights;
        }
    }
}

/// Two views of points of the reference frame, with noise, all matched rightly: `n`, or as many as both views
/// can show.
fn seen(
    random: &mut Random,
    camera: Pinhole,
    reference_t_camera: &Rigid,
    n: usize,
    mut point: impl FnMut(&mut Random) -> Point,
) -> Sights<PixelMatch> {
    let camera_t_reference = reference_t_camera.inverse();
    let both = draw(n, || {
        let p = point(random);
        let there = camera.project(&p)?;
        let here = camera.project(&(camera_t_reference * p))?;
        let m = PixelMatch { pixel: noisy(here, random), reference: noisy(there, random), right: true };
        Some((m, p.z))
    });
    Sights {
        camera,
        depth: median(both.iter().map(|(_, depth)| *depth)),
        matches: both.into_iter().map(|(m, _)| m).collect(),
        truth: Some(*reference_t_camera),
    }
}

/// Makes a share of the matches wrong, by turns: the pixel of another one, or any pixel. Then shuffles.
fn spoil(random: &mut Random, sights: &mut Sights<PixelMatch>, share: f64) {
    let rows = &mut sights.matches;
    let n = rows.len();
    let wrong = (share * n as f64).round() as usize;
    random.shuffle_front(rows, n);
    let references: Vec<[f64; 2]> = rows.iter().map(|m| m.reference).collect();
    for (i, m) in rows.iter_mut().enumerate().take(wrong) {
        m.right = false;
        m.reference = match i % 2 {
            0 => references[(i + 1 + random.below(n.saturating_sub(1))) % n.max(1)],
            _ => sights.camera.anywhere(random),
        };
    }
    random.shuffle_front(rows, n);
}

/// Every other instance has 30 % wrong matches.
fn mixed(random: &mut Random, mut sights: Sights<PixelMatch>) -> Sights<PixelMatch> {
    let share = if random.chance(0.5) { 0.3 } else { 0.0 };
    spoil(random, &mut sights, share);
    sights
}

/// No pose follows from it.
fn open(sights: Sights<PixelMatch>) -> Sights<PixelMatch> {
    Sights { truth: None, ..sights }
}

/// Draws a point, if there is one.
type Draw = dyn Fn(&mut Random) -> Option<Point>;

/// Two views of points that a function draws, from any place for which there are enough of them.
fn views(random: &mut Random, scene: impl Fn(&mut Random) -> Box<Draw>) -> Sights<PixelMatch> {
    loop {
        let one = scene(random);
        let length = random.between(0.4, 1.5);
        let pose = displaced(random, length);
        let nowhere = Point::new(0.0, 0.0, -1.0);
        let sights = seen(random, Pinhole::VGA, &pose, N, |random| one(random).unwrap_or(nowhere));
        if sights.matches.len() == N {
            return mixed(random, sights);
        }
    }
}

/// Points of a plane where the rays of the reference view meet it.
fn on_plane(point: Vector, normal: Vector) -> Box<Draw> {
    let camera = Pinhole::VGA;
    Box::new(move |random| {
        let ray = camera.ray(camera.anywhere(random));
        let depth = normal.dot(&point) / normal.dot(&ray);
        (0.3..100.0).contains(&depth).then(|| Point::from(ray * depth))
    })
}

fn plane(random: &mut Random) -> Sights<PixelMatch> {
    views(random, |random| {
        let roll = turn([0.0, 0.0, 1.0], random.between(-3.1, 3.1));
        let tilt = roll * turn([1.0, 0.0, 0.0], random.between(0.1, 1.2));
        on_plane(Vector::z() * random.between(2.0, 8.0), tilt * Vector::z())
    })
}

fn plane_frontal(random: &mut Random) -> Sights<PixelMatch> {
    views(random, |random| on_plane(Vector::z() * random.between(2.0, 8.0), Vector::z()))
}

fn line(random: &mut Random) -> Sights<PixelMatch> {
    let camera = Pinhole::VGA;
    open(views(random, |random| {
        let start = camera.point(camera.anywhere(random), ROOM, random);
        let way = random.direction();
        Box::new(move |random| Some(start + way * random.between(-5.0, 5.0)))
    }))
}

fn epipolar_plane(random: &mut Random) -> Sights<PixelMatch> {
    let camera = Pinhole::VGA;
    loop {
        let length = random.between(0.4, 1.5);
        let pose = displaced(random, length);
        // A plane through both centres and a point.
        let third = camera.ray(camera.anywhere(random));
        let normal = pose.translation.vector.cross(&third);
        let sights = seen(random, camera, &pose, N, |random| {
            let [x, y] = camera.anywhere(random);
            // The pixel of the plane in this column, or in this row where the plane is nearer to upright.
            let ray = camera.ray([x, y]);
            let ray = match normal.y.abs() > normal.x.abs() {
                true => Vector::new(ray.x, -(normal.x * ray.x + normal.z) / normal.y, 1.0),
                false => Vector::new(-(normal.y * ray.y + normal.z) / normal.x, ray.y, 1.0),
            };
            Point::from(ray * between_logs(ROOM, random))
        });
        if sights.matches.len() == N {
            return open(mixed(random, sights));
        }
    }
}

/// Views that differ by a rotation alone.
fn turned(random: &mut Random, most: f64) -> Sights<PixelMatch> {
    let camera = Pinhole::VGA;
    let pose = Rigid::from_parts(Translation3::identity(), small_rotation(random, most));
    let sights = seen(random, camera, &pose, N, |random| camera.point(camera.anywhere(random), ROOM, random));
    open(mixed(random, sights))
}

fn pure_rotation(random: &mut Random) -> Sights<PixelMatch> {
    turned(random, TURN)
}

fn no_motion(random: &mut Random) -> Sights<PixelMatch> {
    turned(random, 0.0)
}

fn same_pixels(random: &mut Random) -> Sights<PixelMatch> {
    let mut sights = turned(random, 0.0);
    sights.matches.iter_mut().for_each(|m| m.reference = m.pixel);
    sights
}

fn too_few(random: &mut Random) -> Sights<PixelMatch> {
    let n = random.below(5);
    open(common(random, n, ROOM))
}

fn handful(random: &mut Random) -> Sights<PixelMatch> {
    let n = 5 + random.below(10);
    common(random, n, ROOM)
}

fn duplicated(random: &mut Random) -> Sights<PixelMatch> {
    let sights = common(random, 5, ROOM);
    let matches = sights.matches.iter().copied().cycle().take(150).collect();
    open(Sights { matches, ..sights })
}

/// The camera is believed to be another one than it is.
fn believed(random: &mut Random, truth: Pinhole, belief: Pinhole) -> Sights<PixelMatch> {
    loop {
        let baseline = random.between(0.4, 1.5);
        let pose = displaced(random, baseline);
        let sights =
            seen(random, truth, &pose, N, |random| truth.point(truth.anywhere(random), ROOM, random));
        if sights.matches.len() == N {
            return Sights { camera: belief, ..mixed(random, sights) };
        }
    }
}

/// The focal length is off by a share, to one side or the other.
fn focal_off(random: &mut Random, share: f64) -> Sights<PixelMatch> {
    let factor = if random.chance(0.5) { 1.0 + share } else { 1.0 - share };
    believed(random, Pinhole::VGA, Pinhole { focal: factor * Pinhole::VGA.focal, ..Pinhole::VGA })
}

fn focal_5(random: &mut Random) -> Sights<PixelMatch> {
    focal_off(random, 0.05)
}

fn focal_10(random: &mut Random) -> Sights<PixelMatch> {
    focal_off(random, 0.1)
}

fn focal_30(random: &mut Random) -> Sights<PixelMatch> {
    focal_off(random, 0.3)
}

fn center_off(random: &mut Random) -> Sights<PixelMatch> {
    let (sin, cos) = libm::sincos(random.between(-3.1, 3.1));
    let [x, y] = Pinhole::VGA.center;
    let belief = Pinhole { center: [x + 32.0 * cos, y + 32.0 * sin], ..Pinhole::VGA };
    believed(random, Pinhole::VGA, belief)
}

fn distortion_ignored(random: &mut Random) -> Sights<PixelMatch> {
    let k1 = if random.chance(0.5) { -0.3 } else { -0.05 };
    believed(random, Pinhole { k1, ..Pinhole::VGA }, Pinhole::VGA)
}

fn mirrored(random: &mut Random) -> Sights<PixelMatch> {
    let sights = common(random, N, ROOM);
    let mut sights = mixed(random, sights);
    let width = sights.camera.size[0];
    sights.matches.iter_mut().for_each(|m| m.reference[0] = width - m.reference[0]);
    open(sights)
}

fn random_matches(random: &mut Random) -> Sights<PixelMatch> {
    let mut sights = common(random, N, ROOM);
    sights.matches.iter_mut().for_each(|m| m.reference = Pinhole::VGA.anywhere(random));
    open(sights)
}

/// Two views of points at depths, a metre apart.
fn metre_apart(random: &mut Random, depth: [f64; 2]) -> Sights<PixelMatch> {
    let camera = Pinhole::VGA;
    let pose = displaced(random, 1.0);
    let sights =
        seen(random, camera, &pose, N, |random| camera.point(camera.anywhere(random), depth, random));
    mixed(random, sights)
}

fn far(random: &mut Random) -> Sights<PixelMatch> {
    open(metre_apart(random, [1e5, 1e6]))
}

fn small_parallax(random: &mut Random) -> Sights<PixelMatch> {
    metre_apart(random, [50.0, 500.0])
}

fn one_pixel(random: &mut Random) -> Sights<PixelMatch> {
    let mut sights = common(random, N, ROOM);
    let reference = Pinhole::VGA.anywhere(random);
    sights.matches.iter_mut().for_each(|m| m.reference = reference);
    open(sights)
}

fn two_motions(random: &mut Random) -> Sights<PixelMatch> {
    let one = common(random, N / 2, ROOM);
    let mut sights = common(random, N / 2, ROOM);
    sights.matches.extend(one.matches);
    open(mixed(random, sights))
}

fn cylinder(random: &mut Random) -> Sights<PixelMatch> {
    let camera = Pinhole::VGA;
    loop {
        let roll = turn([0.0, 0.0, 1.0], random.between(-3.1, 3.1));
        let tilt = roll * turn([1.0, 0.0, 0.0], random.between(0.0, 0.4));
        let radius = random.between(0.5, 3.0);
        let surface = |angle: f64, height: f64| {
            let (sin, cos) = libm::sincos(angle);
            tilt * Vector::new(radius * (1.0 - cos), radius * sin, height)
        };
        let center = surface(random.between(-1.0, 1.0), random.between(-0.5, 0.5));
        let pose = Rigid::from_parts(Translation3::from(center), small_rotation(random, TURN));
        let one = |random: &mut Random| {
            let angle = random.between(-3.1, 3.1);
            Point::from(surface(angle, between_logs(ROOM, random)))
        };
        let sights = seen(random, camera, &pose, N, one);
        if sights.matches.len() == N {
            return mixed(random, sights);
        }
    }
}

fn patch(random: &mut Random) -> Sights<PixelMatch> {
    let camera = Pinhole::VGA;
    views(random, |random| {
        let [x, y] = camera.anywhere(random);
        Box::new(move |random| {
            let near = [x + random.between(-10.0, 10.0), y + random.between(-10.0, 10.0)];
            Some(camera.point(near, ROOM, random))
        })
    })
}

fn drowned(random: &mut Random) -> Sights<PixelMatch> {
    let mut sights = common(random, N, ROOM);
    let share = random.between(0.93, 0.99);
    spoil(random, &mut sights, share);
    sights
}

fn forward(random: &mut Random) -> Sights<PixelMatch> {
    let camera = Pinhole::VGA;
    let way = Vector::new(random.normal(0.02), random.normal(0.02), 1.0) * random.between(0.3, 1.0);
    let pose = Rigid::from_parts(Translation3::from(way), small_rotation(random, 0.05));
    let sights = seen(random, camera, &pose, N, |random| camera.point(camera.anywhere(random), ROOM, random));
    mixed(random, sights)
}

/// All kinds. Points behind a camera are none of them: a pixel does not tell its ray from the opposite one, and
/// what is behind one camera is in front of that camera turned about the baseline.
pub const KINDS: &[Kind<PixelMatch>] = &[
    Kind { name: "plane", meaning: "points in a plane; solvable up to two", make: plane },
    Kind { name: "plane_frontal", meaning: "in a plane seen at right angles", make: plane_frontal },
    Kind { name: "line", meaning: "points on a line: open", make: line },
    Kind {
        name: "epipolar_plane",
        meaning: "points in a plane with both centres: open",
        make: epipolar_plane,
    },
    Kind { name: "pure_rotation", meaning: "no translation: its direction is open", make: pure_rotation },
    Kind { name: "no_motion", meaning: "the same place, noise in both views", make: no_motion },
    Kind { name: "same_pixels", meaning: "both views have the same pixels", make: same_pixels },
    Kind { name: "too_few", meaning: "0 to 4 matches", make: too_few },
    Kind { name: "handful", meaning: "5 to 14 matches, all right", make: handful },
    Kind { name: "duplicated", meaning: "5 matches, 30 times each", make: duplicated },
    Kind { name: "focal_5", meaning: "focal length 5 % off", make: focal_5 },
    Kind { name: "focal_10", meaning: "focal length 10 % off", make: focal_10 },
    Kind { name: "focal_30", meaning: "focal length 30 % off", make: focal_30 },
    Kind { name: "center_off", meaning: "principal point 32 px off", make: center_off },
    Kind { name: "distortion_ignored", meaning: "k1 of -0.3 or -0.05 ignored", make: distortion_ignored },
    Kind { name: "mirrored", meaning: "the reference image is mirrored", make: mirrored },
    Kind { name: "random", meaning: "any pixel with any other", make: random_matches },
    Kind { name: "far", meaning: "100 km away, 1 m apart: direction open", make: far },
    Kind { name: "small_parallax", meaning: "50 to 500 m away, 1 m apart", make: small_parallax },
    Kind { name: "one_pixel", meaning: "all matched with one pixel", make: one_pixel },
    Kind { name: "two_motions", meaning: "half of the matches on a moving body", make: two_motions },
    Kind { name: "cylinder", meaning: "points and both centres on a cylinder", make: cylinder },
    Kind { name: "patch", meaning: "all within 20 x 20 px", make: patch },
    Kind { name: "drowned", meaning: "93 to 99 % wrong matches", make: drowned },
    Kind { name: "forward", meaning: "translation along the axis; solvable", make: forward },
];
