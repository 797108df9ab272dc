# The node for NVIDIA Jetson with JetPack 6: Ubuntu 22.04, ROS 2 Humble, kernels made ahead for
# Orin. Not yet built, nor run on a Jetson.
#
#   docker build -f docker/jetson.Dockerfile -t flashreg .
#   docker run --rm --runtime nvidia --network host --ipc host flashreg
#
# Elsewhere with `docker build --platform linux/arm64`. The image holds no CUDA: the driver comes
# from the Jetson through its container runtime, and the kernels need no compiler.

# Rust 1.88 or newer; Ubuntu 22.04 has none.
FROM rust:1.88-slim-bookworm AS rust

FROM ros:humble-ros-base AS build
COPY --from=rust /usr/local/cargo /usr/local/cargo
COPY --from=rust /usr/local/rustup /usr/local/rustup
ENV RUSTUP_HOME=/usr/local/rustup CARGO_HOME=/usr/local/cargo PATH=/usr/local/cargo/bin:$PATH
RUN apt-get update \
 && apt-get install -y --no-install-recommends build-essential libclang-dev python3-pip \
 && rm -rf /var/lib/apt/lists/*
# The compiler of the kernels, as in JetPack 6.1 and 6.2.
RUN pip3 install --no-cache-dir colcon-cargo==0.2.0 colcon-ros-cargo==0.2.0 cargo-ament-build==0.1.11 \
 && pip3 install --no-cache-dir --target /nvrtc nvidia-cuda-nvrtc-cu12==12.6.85
WORKDIR /workspace
COPY . src/flashreg
SHELL ["/bin/bash", "-c"]
RUN source /opt/ros/humble/setup.bash \
 && colcon build --packages-select flashreg --merge-install --install-base /opt/flashreg --cargo-args --release --locked
RUN FLASHREG_NVRTC=/nvrtc/nvidia/cuda_nvrtc/lib/libnvrtc.so.12 \
    /opt/flashreg/lib/flashreg/flashreg kernels /opt/flashreg/share/flashreg/kernels --arch 87

FROM ros:humble-ros-base
COPY --from=build /opt/flashreg /opt/flashreg
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
WORKDIR /opt/flashreg
# The entry point of the base image sources ROS. Arguments of `docker run` replace these.
CMD ["lib/flashreg/flashreg_node", "--ros-args", \
     "--params-file", "share/flashreg/config/localizer.yaml", \
     "--params-file", "share/flashreg/config/outdoor.yaml", \
     "--params-file", "share/flashreg/config/jetson.yaml", \
     "-p", "backend.on_fault:=exit"]
