# SPDX-License-Identifier: Apache-2.0
#
# record.py FILE prints the requests by which adqsetup, the package on PyPI, applies
# FILE to sim0. test/wire/record runs it. No request reaches the kernel: this program
# answers like a card of Intel's own driver with 8 queues and nothing set up, in a
# host with 16 processors. One line for each request: "route HEX" is a netlink
# message, "ioctl HEX" a request of SIOCETHTOOL.
import struct
import sys
import types

import adqsetup

DEV, INDEX, QUEUES = "sim0", 10, 8
FEATURES = ["hw-tc-offload", "rx-ntuple-filter"]
FLAGS = ["channel-inline-flow-director", "channel-pkt-inspect-optimize",
         "channel-pkt-clean-bp-stop", "channel-pkt-clean-bp-stop-cfg"]
SYSCTLS = {"core.busy_poll": "0", "core.busy_read": "0"}
for name in ("arp_announce", "arp_ignore", "arp_notify"):
    SYSCTLS["ipv4.conf.%s.%s" % (DEV, name)] = "0"
out = []


def netlink_init(self, service=0, groups=0, bufsize=0):
    self.service, self._seq, self.pid = service, 0, 0
    self.socket = types.SimpleNamespace(close=lambda: None)


def netlink_send(self, msg):
    if msg.seq == -1:
        msg.seq = self.seq
    out.append("route " + bytes(msg._bytes).hex())
    return []


adqsetup.NLConn.__init__ = netlink_init
adqsetup.NLConn.sendmsg = netlink_send
adqsetup.NLConn.send = netlink_send
adqsetup.if_nametoindex = lambda name: INDEX


class Card:
    """The settings that adqsetup reads back."""
    features, flags, rule = 0, 0, 1024
    coalesce = {q: struct.pack("22I", *[0] * 22) for q in range(QUEUES)}
    rings = [4096, 0, 0, 4096, 512, 0, 0, 256]


def ioctl(self, data):
    data = bytes(data)
    out.append("ioctl " + data.hex())
    cmd = struct.unpack_from("I", data)[0]
    e = adqsetup.Ethtool
    names = None
    if cmd == e.CMD_GSSET_INFO:
        mask = struct.unpack_from("Q", data, 8)[0]
        names = FEATURES if mask == 1 << e.ETH_SS_FEATURES else FLAGS
        return struct.pack("2IQI", cmd, 0, mask, len(names))
    if cmd == e.CMD_GSTRINGS:
        names = FEATURES if struct.unpack_from("I", data, 4)[0] == e.ETH_SS_FEATURES else FLAGS
        return data[:12] + b"".join(struct.pack("32s", n.encode()) for n in names)
    if cmd == e.CMD_GFEATURES:
        return data[:8] + struct.pack("4I", 3, 3, Card.features, 0)
    if cmd == e.CMD_SFEATURES:
        valid, wanted = struct.unpack_from("2I", data, 8)
        Card.features = Card.features & ~valid | wanted & valid
    if cmd == e.CMD_GPFLAGS:
        return struct.pack("2I", cmd, Card.flags)
    if cmd == e.CMD_SPFLAGS:
        Card.flags = struct.unpack_from("I", data, 4)[0]
    if cmd == e.CMD_GRINGPARAM:
        return struct.pack("9I", cmd, *Card.rings)
    if cmd == e.CMD_SRINGPARAM:
        Card.rings = struct.unpack_from("8I", data, 4)
    if cmd == e.CMD_GCHANNELS:
        return struct.pack("9I", cmd, 0, 0, 0, QUEUES, 0, 0, 0, QUEUES)
    if cmd == e.CMD_GRXCLSRLCNT:
        r = adqsetup.RXnfc._from(data)
        return r._replace(data=Card.rule, count=0)._bytes
    return data


adqsetup.Ethtool.__init__ = lambda self, ifname, log=None: self.__dict__.update(
    ifname=ifname, ifindex=INDEX, log=log, _rule_id=None)
adqsetup.Ethtool._ioctl = ioctl


class Devlink:
    def __init__(self, device, log=None):
        pass

    def param(self, name, modify=None):
        if name == "num_qps_per_poller":
            raise OSError("no such parameter")
        out.append("devlink %s %s" % (name, str(modify).lower()))


def sysctl(key, value=None, log=None):
    if value is None:
        return SYSCTLS
    out.append("write /proc/sys/%s %s" % (key.replace(".", "/"), value))


def inventory(self):
    self.devs = {DEV: {"numa_node": 0}}
    self.numa_nodes, self.numa_cpus, self.cpus_online = 1, [list(range(16))], list(range(16))


adqsetup.Devlink = Devlink
adqsetup._sysctl = sysctl
adqsetup.Inventory.__init__ = inventory
adqsetup._irqs = lambda dev: list(range(42, 42 + QUEUES))
adqsetup._napi_threads = lambda dev: list(range(1000, 1000 + QUEUES))
adqsetup.sched_setaffinity = lambda pid, cpus: out.append("affinity queue-%d %s" % (pid - 1000, list(cpus)[0]))
adqsetup._writefile = lambda path, data: out.append("write %s %s" % (path, data))
adqsetup.os = types.SimpleNamespace(**{n: getattr(adqsetup.os, n) for n in dir(adqsetup.os) if not n.startswith("__")})
adqsetup.os.path = types.SimpleNamespace(**{n: getattr(adqsetup.os.path, n) for n in dir(adqsetup.os.path) if not n.startswith("__")})
adqsetup.os.path.exists = lambda path: True

recorded, sys.stdout = sys.stdout, sys.stderr
with open(sys.argv[1]) as f:
    config = adqsetup.Config(f)
config.validate()
config.apply()
for line in out:
    print(line, file=recorded)
