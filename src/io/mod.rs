//! Files: correspondences, trajectories, bags.
