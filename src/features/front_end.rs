//! Surface and features of a cloud, computed by threads of its own.

use super::fpfh::{self, Histogram};
use super::neighbours::Grid;
use super::voxel::Voxels;
use super::{normals, orient, Descriptor, Features, Lengths, Surface};
use crate::geometry::{Point, Vector};
use rayon::prelude::*;

/// Computes surfaces and features. Results are the same with any number of threads. The memory is reused.
pub struct FrontEnd {
    pool: rayon::ThreadPool,
    voxels: Voxels,
    grid: Grid,
    points: Vec<Point>,
    normals: Vec<Vector>,
    sorted_normals: Vec<Vector>,
    /// Of the points with a normal, their numbers in the surface.
    numbers: Vec<usize>,
    /// In the order of the grid.
    simplified: Vec<Histogram>,
    sorted: Vec<Option<Descriptor>>,
    /// In the order of the surface that was described last.
    descriptors: Vec<Option<Descriptor>>,
    /// Plainness, number among the members, number of the point, descriptor.
    found: Vec<(u32, usize, usize, Descriptor)>,
}

/// Points that a thread takes at a time at least.
const TOGETHER: usize = 32;

/// Points after which progress is told.
const STEP: usize = 32_768;

impl FrontEnd {
    /// With `threads` threads; 0: one per core.
    pub fn new(threads: usize) -> Result<Self, rayon::ThreadPoolBuildError> {
        let name = |i| format!("flashreg-front-{i}");
        Ok(Self {
            pool: rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(name).build()?,
            voxels: Voxels::default(),
            grid: Grid::default(),
            points: Vec::new(),
            normals: Vec::new(),
            sorted_normals: Vec::new(),
            numbers: Vec::new(),
            simplified: Vec::new(),
            sorted: Vec::new(),
            descriptors: Vec::new(),
            found: Vec::new(),
        })
    }

    /// Replaces `out` by the means of the voxels of edge `voxel` (m, positive) in their order, with normals from the
    /// neighbours within [`Lengths::normal_radius`], turned towards `viewpoint`. Without one the points are a map with
    /// z up, and normals are turned to the side of a surface that a robot on a floor can see.
    pub fn surface(&mut self, points: &[Point], voxel: f64, viewpoint: Option<Point>, out: &mut Surface) {
        let Self { pool, voxels, grid, sorted_normals, .. } = self;
        pool.install(|| {
            voxels.sample(points, voxel, &mut out.points);
            grid.build(&out.points, Lengths::new(voxel).normal_radius);
            (0..grid.len())
                .into_par_iter()
                .with_min_len(TOGETHER)
                .map(|i| normals::normal(grid, i, viewpoint.as_ref()))
                .collect_into_vec(sorted_normals);
            out.normals.clear();
            out.normals.resize(out.points.len(), Vector::zeros());
            for (i, normal) in grid.order().zip(sorted_normals) {
                if let Some(place) = out.normals.get_mut(i) {
                    *place = *normal;
                }
            }
            if viewpoint.is_none() {
                orient::towards_free_space(&out.points, &mut out.normals, voxel);
            }
        });
    }

    /// Replaces `out` by the features of a surface, in the order of its points. Points without a normal or with too
    /// few neighbours have none. Of more than `max`, those are taken that look least like a plane.
    pub fn features(&mut self, surface: &Surface, lengths: &Lengths, max: usize, out: &mut Features) {
        self.describe(surface, lengths, |_, _| ());
        let all = 0..surface.points.len();
        self.choose(surface, all, max, out);
    }

    /// Computes the descriptors of a surface, for [`FrontEnd::choose`]. `progress` is told how many steps of how many
    /// are done.
    pub fn describe(&mut self, surface: &Surface, lengths: &Lengths, mut progress: impl FnMut(usize, usize)) {
        let Self {
            pool,
            grid,
            points,
            normals,
            numbers,
            sorted_normals,
            simplified,
            sorted,
            descriptors,
            ..
        } = self;
        points.clear();
        normals.clear();
        numbers.clear();
        let all = surface.points.iter().zip(&surface.normals).enumerate();
        for (number, (point, normal)) in all.filter(|(_, (_, normal))| normal.norm_squared() > 0.5) {
            numbers.push(number);
            points.push(*point);
            normals.push(*normal);
        }
        pool.install(|| {
            grid.build(points, lengths.feature_radius);
            sorted_normals.clear();
            sorted_normals.extend(grid.order().filter_map(|i| normals.get(i)));
        });
        let steps = 2 * grid.len().div_ceil(STEP);
        let ranges = || (0..grid.len()).step_by(STEP).map(|from| from..(from + STEP).min(grid.len()));
        simplified.clear();
        sorted.clear();
        for (done, range) in ranges().enumerate() {
            progress(done, steps);
            let places = range.into_par_iter().with_min_len(TOGETHER);
            pool.install(|| simplified.par_extend(places.map(|i| fpfh::simplified(grid, sorted_normals, i))));
        }
        for (done, range) in ranges().enumerate() {
            progress(steps / 2 + done, steps);
            let places = range.into_par_iter().with_min_len(TOGETHER);
            pool.install(|| sorted.par_extend(places.map(|i| fpfh::descriptor(grid, simplified, i))));
        }
        progress(steps, steps);
        descriptors.clear();
        descriptors.resize(surface.points.len(), None);
        for (i, descriptor) in grid.order().zip(sorted.iter()) {
            if let Some(place) = numbers.get(i).and_then(|number| descriptors.get_mut(*number)) {
                *place = *descriptor;
            }
        }
    }

    /// Replaces `out` by the features of some points of the surface that was described, in the order of `members`.
    /// Of more than `max`, those are taken that look least like a plane.
    pub fn choose(
        &mut self,
        surface: &Surface,
        members: impl Iterator<Item = usize>,
        max: usize,
        out: &mut Features,
    ) {
        let Self { descriptors, found, .. } = self;
        found.clear();
        let described = |i: usize| Some((i, (*descriptors.get(i)?)?));
        found.extend(
            members.filter_map(described).enumerate().map(|(n, (i, d))| (fpfh::plainness(&d), n, i, d)),
        );
        if found.len() > max {
            found.select_nth_unstable(max);
            found.truncate(max);
        }
        found.sort_unstable_by_key(|&(_, n, ..)| n);
        out.points.clear();
        out.descriptors.clear();
        for (point, d) in found.iter().filter_map(|(_, _, i, d)| Some((surface.points.get(*i)?, d))) {
            out.points.push(*point);
            out.descriptors.push(*d);
        }
    }
}
