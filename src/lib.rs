//! flashreg tells a robot where it is: it registers feature correspondences and returns the pose
//! with a status that says whether to trust it.
//!
//! The library knows no middleware. A room uses only rooms below it:
//! `ros` > `replay` > `simulate` > `localizer` > `features` > `io` > `messages` > `estimation` > `registration` > `gpu` >
//! `geometry`. Beside them [`homotopy`] solves systems of polynomial equations, for [`estimation`] among others;
//! it uses [`gpu`] and [`geometry`] only. All use
//! [`latency`], [`params`] and [`status`]; what is drawn, by [`figure`].
//!
//! Transforms are named `target_t_source`: `p_target = target_t_source * p_source`. Lengths are
//! metres and angles radians unless a name says otherwise.
#![warn(missing_docs)]

pub mod estimation;
pub mod features;
pub mod figure;
pub mod geometry;
pub mod gpu;
pub mod homotopy;
pub mod io;
pub mod latency;
pub mod localizer;
pub mod messages;
pub mod params;
pub mod registration;
pub mod replay;
#[cfg(feature = "ros")]
pub mod ros;
pub mod simulate;
pub mod status;
