//! From messages to trusted poses: the very same object drives the node and the replay.
