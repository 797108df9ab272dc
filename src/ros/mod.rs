//! The ROS 2 node: the only place that names r2r.
