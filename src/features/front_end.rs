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
    simplified: Vec<Histogram>,
    descriptors: Vec<Option<Descriptor>>,
    /// Plainness, number of the point, descriptor.
    found: Vec<(u32, usize, Descriptor)>,
}

/// Points that a thread takes at a time at least.
const TOGETHER: usize = 32;

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
            simplified: Vec::new(),
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
        let Self { pool, grid, points, normals, sorted_normals, simplified, descriptors, found, .. } = self;
        points.clear();
        normals.clear();
        let with_normal = surface.points.iter().zip(&surface.normals).filter(|(_, n)| n.norm_squared() > 0.5);
        for (point, normal) in with_normal {
            points.push(*point);
            normals.push(*normal);
        }
        pool.install(|| {
            grid.build(points, lengths.feature_radius);
            sorted_normals.clear();
            sorted_normals.extend(grid.order().filter_map(|i| normals.get(i)));
            let places = || (0..grid.len()).into_par_iter().with_min_len(TOGETHER);
            places().map(|i| fpfh::simplified(grid, sorted_normals, i)).collect_into_vec(simplified);
            places().map(|i| fpfh::descriptor(grid, simplified, i)).collect_into_vec(descriptors);
        });
        found.clear();
        for (i, descriptor) in grid.order().zip(descriptors.iter()) {
            found.extend(descriptor.map(|descriptor| (fpfh::plainness(&descriptor), i, descriptor)));
        }
        if found.len() > max {
            found.select_nth_unstable(max);
            found.truncate(max);
        }
        found.sort_unstable_by_key(|&(_, i, _)| i);
        out.points.clear();
        out.descriptors.clear();
        for (point, descriptor) in found.iter().filter_map(|(_, i, d)| Some((points.get(*i)?, d))) {
            out.points.push(*point);
            out.descriptors.push(*descriptor);
        }
    }
}
