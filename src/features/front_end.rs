//! Surface and features of a cloud, computed by threads of its own.

use super::fpfh::{self, Histogram};
use super::neighbours::Grid;
use super::voxel::Voxels;
use super::{normals, Descriptor, Features, Lengths, Surface};
use crate::geometry::{Point, Vector};
use rayon::prelude::*;

/// Computes surfaces and features. Results are the same with any number of threads. The memory is reused.
pub struct FrontEnd {
    pool: rayon::ThreadPool,
    voxels: Voxels,
    grid: Grid,
    sorted_normals: Vec<Vector>,
    simplified: Vec<Histogram>,
    descriptors: Vec<Option<Descriptor>>,
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
            sorted_normals: Vec::new(),
            simplified: Vec::new(),
            descriptors: Vec::new(),
        })
    }

    /// Replaces `out` by the means of the voxels of edge `voxel` (m, positive) in their order, with normals from the
    /// neighbours within [`Lengths::normal_radius`], turned towards `viewpoint` if there is one.
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
        });
        out.normals.clear();
        out.normals.resize(out.points.len(), Vector::zeros());
        for (i, normal) in grid.order().zip(sorted_normals) {
            if let Some(place) = out.normals.get_mut(i) {
                *place = *normal;
            }
        }
    }

    /// Replaces `out` by the features of a surface, at most `max`, in the order of its points.
    pub fn features(&mut self, surface: &Surface, lengths: &Lengths, max: usize, out: &mut Features) {
        let Self { pool, grid, sorted_normals, simplified, descriptors, .. } = self;
        pool.install(|| {
            grid.build(&surface.points, lengths.feature_radius);
            sorted_normals.clear();
            sorted_normals.extend(grid.order().map(|i| surface.normals.get(i).copied().unwrap_or_default()));
            let places = || (0..grid.len()).into_par_iter().with_min_len(TOGETHER);
            places().map(|i| fpfh::simplified(grid, sorted_normals, i)).collect_into_vec(simplified);
            places().map(|i| fpfh::descriptor(grid, simplified, i)).collect_into_vec(descriptors);
        });
        out.points.clear();
        out.descriptors.clear();
        for (point, descriptor) in grid.points().iter().zip(descriptors) {
            if let Some(descriptor) = descriptor.filter(|_| out.points.len() < max) {
                out.points.push(*point);
                out.descriptors.push(descriptor);
            }
        }
    }
}
