"""The other side of a node under test: an rclpy node that sends, collects and asks."""

import threading
import time

import rclpy
from clouds import time_message
from geometry_msgs.msg import PoseWithCovarianceStamped, TransformStamped
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter, parameter_value_to_python
from rclpy.parameter_client import AsyncParameterClient
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy, qos_profile_sensor_data
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import PointCloud2
from tf2_msgs.msg import TFMessage

LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL, reliability=ReliabilityPolicy.RELIABLE)
RELIABLE = QoSProfile(depth=100, reliability=ReliabilityPolicy.RELIABLE)


def wait_until(predicate, timeout=5.0, what="the condition"):
    """Returns the predicate's value as soon as it is true; fails after the timeout in seconds."""
    end = time.monotonic() + timeout
    while not (value := predicate()):
        assert time.monotonic() < end, f"{what} did not come within {timeout} s"
        time.sleep(0.005)
    return value


def transform(parent, child, stamp, translation=(0.0, 0.0, 0.0), rotation=(0.0, 0.0, 0.0, 1.0)):
    """A TransformStamped; the stamp in nanoseconds, the rotation a quaternion (x, y, z, w)."""
    message = TransformStamped()
    message.header.frame_id, message.child_frame_id = parent, child
    message.header.stamp = time_message(stamp)
    t, r = message.transform.translation, message.transform.rotation
    t.x, t.y, t.z = map(float, translation)
    r.x, r.y, r.z, r.w = map(float, rotation)
    return message


class Peer:
    """An rclpy node whose callbacks run in a thread of their own."""

    def __init__(self, domain):
        self._context = rclpy.Context()
        rclpy.init(context=self._context, domain_id=domain)
        self.node = rclpy.create_node("test_peer", context=self._context)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self.node)
        self._thread = threading.Thread(target=self._executor.spin)
        self._thread.start()
        self._publishers, self._clients, self._parameter_clients = {}, {}, {}
        self._static_transforms = []

    def close(self):
        """Ends the thread and leaves the graph."""
        self._executor.shutdown()
        self._thread.join()
        self.node.destroy_node()
        self._context.try_shutdown()

    # ------------------------------------------------------------ the graph

    def node_names(self):
        """Full names of all nodes in the graph."""
        return {f"{namespace.rstrip('/')}/{name}" for name, namespace in self.node.get_node_names_and_namespaces()}

    def wait_for_node(self, name, timeout=15.0):
        """Waits until a node is in the graph and answers questions about its parameters."""
        wait_until(lambda: name in self.node_names(), timeout, f"node {name}")
        assert self._parameters_of(name).wait_for_services(timeout), f"no parameter services of {name}"

    # ------------------------------------------------------------ sending

    def send(self, topic, message, qos=RELIABLE, wait=True):
        """Publishes; waits for a subscriber first, so that nothing is lost to slow discovery."""
        if topic not in self._publishers:
            self._publishers[topic] = self.node.create_publisher(type(message), topic, qos)
        publisher = self._publishers[topic]
        if wait:
            wait_until(lambda: publisher.get_subscription_count() > 0, 10.0, f"a subscriber of {topic}")
        publisher.publish(message)

    def send_cloud(self, cloud, topic="/correspondences_3d3d", reliable=False):
        """Publishes a PointCloud2 as a sensor driver does, best effort, or reliable."""
        assert isinstance(cloud, PointCloud2)
        self.send(topic, cloud, RELIABLE if reliable else qos_profile_sensor_data)

    def send_tf(self, *transforms, topic="/tf"):
        """Publishes transforms that change; see transform()."""
        self.send(topic, TFMessage(transforms=list(transforms)))

    def send_static_tf(self, *transforms, topic="/tf_static"):
        """Publishes transforms that stay: latched, all those of this peer together."""
        self._static_transforms += transforms
        self.send(topic, TFMessage(transforms=self._static_transforms), LATCHED, wait=False)

    def send_clock(self, nanoseconds):
        """Sets the simulated time."""
        self.send("/clock", Clock(clock=time_message(nanoseconds)))

    def send_initialpose(self, stamp, position, orientation, covariance, frame_id="map", topic="/initialpose"):
        """Publishes an initial pose; orientation (x, y, z, w), covariance 36 numbers."""
        message = PoseWithCovarianceStamped()
        message.header.frame_id, message.header.stamp = frame_id, time_message(stamp)
        p, q = message.pose.pose.position, message.pose.pose.orientation
        p.x, p.y, p.z = map(float, position)
        q.x, q.y, q.z, q.w = map(float, orientation)
        message.pose.covariance = [float(value) for value in covariance]
        self.send(topic, message)

    # ------------------------------------------------------------ collecting

    def collect(self, kind, topic, qos=RELIABLE):
        """Subscribes; returns a list that grows with each message.

        A reliable subscriber does not hear a best-effort publisher: pass
        rclpy.qos.qos_profile_sensor_data for these, LATCHED for what was sent before.
        """
        messages = []
        self.node.create_subscription(kind, topic, messages.append, qos)
        return messages

    def collect_tf(self, topic="/tf"):
        """Like collect, with the single transforms of the messages."""
        transforms = []
        self.node.create_subscription(TFMessage, topic, lambda m: transforms.extend(m.transforms), RELIABLE)
        return transforms

    # ------------------------------------------------------------ asking

    def call(self, kind, name, request=None, timeout=5.0):
        """Calls a service and returns its response."""
        if name not in self._clients:
            self._clients[name] = self.node.create_client(kind, name)
        client = self._clients[name]
        assert client.wait_for_service(timeout), f"no service {name}"
        return self._result(client.call_async(request or kind.Request()), timeout, name)

    def list_parameters(self, node="/flashreg"):
        """Names of a node's parameters."""
        return set(self._result(self._parameters_of(node).list_parameters()).result.names)

    def get_parameter(self, name, node="/flashreg"):
        """Value of a parameter, None if it is not set."""
        response = self._result(self._parameters_of(node).get_parameters([name]))
        return parameter_value_to_python(response.values[0])

    def set_parameters(self, values, node="/flashreg"):
        """Sets {name: value}; returns the list of rcl_interfaces/SetParametersResult."""
        parameters = [Parameter(name, value=value) for name, value in values.items()]
        return self._result(self._parameters_of(node).set_parameters(parameters)).results

    def _parameters_of(self, node):
        if node not in self._parameter_clients:
            self._parameter_clients[node] = AsyncParameterClient(self.node, node)
        return self._parameter_clients[node]

    @staticmethod
    def _result(future, timeout=5.0, what="parameter service"):
        wait_until(future.done, timeout, f"the answer of {what}")
        return future.result()
