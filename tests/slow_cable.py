"""Simulates a slow network cable: a frame that arrives at the network device VETH is delivered SECONDS seconds later by
a new device, named TAP, which is a port of the network bridge `bridge`. A frame that the bridge sends over TAP leaves
over VETH SECONDS seconds later. Run this program in the network namespace of the devices:

    python slow_cable.py DEVICE             run this first on each machine; DEVICE then sends frames as on a real cable
    python slow_cable.py VETH TAP SECONDS
"""

import ctypes
import fcntl
import heapq
import os
import select
import socket
import struct
import subprocess
import sys
import time

IFF_TAP, IFF_NO_PI, TUNSETIFF = 0x0002, 0x1000, 0x400454CA
ETH_P_ALL = 3
PACKET_OUTGOING = 4
LONGEST_FRAME = 1 << 16


SIOCETHTOOL = 0x8946
ETHTOOL_STXCSUM, ETHTOOL_STSO, ETHTOOL_SGSO = 0x17, 0x1F, 0x24


def send_whole_frames(device):
    """Makes the kernel compute checksums and split packets into frames that fit the device's MTU. By default the kernel
    leaves this work to the network card."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for what in (ETHTOOL_STXCSUM, ETHTOOL_STSO, ETHTOOL_SGSO):
            value = ctypes.create_string_buffer(struct.pack("II", what, 0))
            request = struct.pack("16sP", device.encode(), ctypes.addressof(value))
            fcntl.ioctl(any_socket, SIOCETHTOOL, request)


def delay_frames(veth, tap, delay):
    cable = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    cable.bind((veth, 0))
    switch = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(switch, TUNSETIFF, struct.pack("16sH", tap.encode(), IFF_TAP | IFF_NO_PI))
    subprocess.run(["ip", "link", "set", tap, "master", "bridge", "up"], check=True)
    print("ready", flush=True)
    under_way = []  # heap of (arrival time, serial number, destination, frame)
    sent = 0
    while True:
        wait = max(0, under_way[0][0] - time.monotonic()) if under_way else None
        readable, _, _ = select.select([cable, switch], [], [], wait)
        now = time.monotonic()
        if cable in readable:
            frame, (_, _, kind, *_) = cable.recvfrom(LONGEST_FRAME)
            if kind != PACKET_OUTGOING:
                heapq.heappush(under_way, (now + delay, sent, switch, frame))
                sent += 1
        if switch in readable:
            heapq.heappush(under_way, (now + delay, sent, cable, os.read(switch, LONGEST_FRAME)))
            sent += 1
        while under_way and under_way[0][0] <= time.monotonic():
            _, _, to, frame = heapq.heappop(under_way)
            if to is cable:
                cable.send(frame)
            else:
                os.write(switch, frame)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        send_whole_frames(sys.argv[1])
    else:
        delay_frames(sys.argv[1], sys.argv[2], float(sys.argv[3]))
