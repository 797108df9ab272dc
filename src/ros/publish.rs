//! What goes out: transforms, poses, candidates, points.

use super::time;
use crate::geometry::{self, Rigid};
use crate::localizer::{Frame, Input, Localizer, Pose, RelativePose, TfOut};
use crate::messages::Stamp;
use crate::status::Status;
use r2r::geometry_msgs::msg::{
    Point, Pose as PoseMsg, PoseArray, PoseStamped, PoseWithCovariance, PoseWithCovarianceStamped,
    Quaternion, Transform, TransformStamped, Vector3,
};
use r2r::sensor_msgs::msg::{PointCloud2, PointField};
use r2r::std_msgs::msg::Header;
use r2r::tf2_msgs::msg::TFMessage;
use r2r::{Node, Publisher, QosProfile};

/// The publishers of the results, owned by the worker.
pub struct Outputs {
    tf: Publisher<TFMessage>,
    pose: Publisher<PoseWithCovarianceStamped>,
    relative_pose: Publisher<PoseStamped>,
    candidates: Publisher<PoseArray>,
    inliers: Publisher<PointCloud2>,
    aligned_points: Publisher<PointCloud2>,
    map: String,
}

impl Outputs {
    /// Makes the publishers; `map` is the frame of the map.
    pub fn new(node: &mut Node, map: &str) -> r2r::Result<Self> {
        Ok(Self {
            tf: node.create_publisher("/tf", QosProfile::default().keep_last(100))?,
            pose: node.create_publisher("pose", QosProfile::default())?,
            relative_pose: node.create_publisher("relative_pose", QosProfile::default())?,
            candidates: node.create_publisher("candidates", QosProfile::default())?,
            inliers: node.create_publisher("inliers", QosProfile::sensor_data().keep_last(1))?,
            aligned_points: node
                .create_publisher("aligned_points", QosProfile::sensor_data().keep_last(1))?,
            map: map.to_owned(),
        })
    }

    /// Sends what a frame allows to be sent: an accepted pose and its transform, or the last
    /// accepted transform again. Nothing else ever goes to `/tf`. A pose relative to another view has a topic of
    /// its own.
    pub fn send(&self, frame: &Frame) -> r2r::Result<()> {
        let accepted = frame.accepted.as_ref();
        if let Some(tf) = accepted.and_then(|pose| pose.tf.as_ref()).or(frame.hold.as_ref()) {
            self.tf.publish(&TFMessage { transforms: vec![transform(tf)] })?;
        }
        if let Some(pose) = accepted {
            let header = self.header(frame.stamp);
            self.pose.publish(&PoseWithCovarianceStamped { header, pose: pose_with_covariance(pose) })?;
        }
        if let Some(RelativePose { frame: reference, reference_t_camera }) = &frame.relative {
            let header = Header { stamp: time(frame.stamp), frame_id: reference.as_ref().to_owned() };
            self.relative_pose.publish(&PoseStamped { header, pose: pose_msg(reference_t_camera) })?;
        }
        Ok(())
    }

    /// Sends what helps people: the candidates of a pose in the map that is not settled, the inliers as points of
    /// the map, and where an accepted pose puts the points of a raw cloud. None is made unless somebody listens.
    pub fn explain(&self, localizer: &Localizer) -> r2r::Result<()> {
        let frame = localizer.frame();
        let candidates = &frame.facts.candidates;
        let open =
            matches!(frame.status, Status::Ambiguous | Status::Unconfirmed) && frame.input.is_absolute();
        if open && is_heard(&self.candidates) {
            let poses = candidates.iter().map(|c| pose_msg(&c.map_t_base)).collect();
            self.candidates.publish(&PoseArray { header: self.header(frame.stamp), poses })?;
        }
        let has_rows = matches!(frame.input, Input::Points3d3d | Input::Sights2d3d);
        if frame.registered && has_rows && is_heard(&self.inliers) {
            self.inliers.publish(&cloud(self.header(frame.stamp), localizer.inliers()))?;
        }
        if frame.input == Input::Points && frame.accepted.is_some() && is_heard(&self.aligned_points) {
            self.aligned_points.publish(&cloud(self.header(frame.stamp), localizer.aligned()))?;
        }
        Ok(())
    }

    fn header(&self, stamp: Stamp) -> Header {
        Header { stamp: time(stamp), frame_id: self.map.clone() }
    }
}

/// Somebody subscribes.
pub(super) fn is_heard<T: r2r::WrappedTypesupport + 'static>(publisher: &Publisher<T>) -> bool {
    publisher.get_inter_process_subscription_count().is_ok_and(|n| n > 0)
}

fn quaternion(pose: &Rigid) -> Quaternion {
    let q = pose.rotation.coords;
    Quaternion { x: q.x, y: q.y, z: q.z, w: q.w }
}

fn transform(tf: &TfOut) -> TransformStamped {
    let t = tf.transform.translation.vector;
    TransformStamped {
        header: Header { stamp: time(tf.stamp), frame_id: tf.parent.as_ref().to_owned() },
        child_frame_id: tf.child.as_ref().to_owned(),
        transform: Transform {
            translation: Vector3 { x: t.x, y: t.y, z: t.z },
            rotation: quaternion(&tf.transform),
        },
    }
}

fn pose_msg(pose: &Rigid) -> PoseMsg {
    let t = pose.translation.vector;
    PoseMsg { position: Point { x: t.x, y: t.y, z: t.z }, orientation: quaternion(pose) }
}

fn pose_with_covariance(pose: &Pose) -> PoseWithCovariance {
    // Symmetric, so that the order of rows and columns is the same.
    let covariance = pose.covariance.iter().copied().collect();
    PoseWithCovariance { pose: pose_msg(&pose.map_t_base), covariance }
}

/// Points of the map, in single precision as RViz reads them.
pub(super) fn cloud(header: Header, points: impl Iterator<Item = geometry::Point>) -> PointCloud2 {
    let mut data = Vec::new();
    for point in points {
        for value in point.iter() {
            data.extend_from_slice(&(*value as f32).to_le_bytes());
        }
    }
    let field = |(name, offset): (&str, u32)| PointField {
        name: name.to_owned(),
        offset,
        datatype: PointField::FLOAT32 as u8,
        count: 1,
    };
    PointCloud2 {
        header,
        height: 1,
        width: (data.len() / 12) as u32,
        fields: [("x", 0), ("y", 4), ("z", 8)].map(field).into(),
        is_bigendian: false,
        point_step: 12,
        row_step: data.len() as u32,
        data,
        is_dense: true,
    }
}
