// SPDX-License-Identifier: Apache-2.0

// Package power measures what a host draws while something else is measured,
// and says how well it knows it.
//
// A Source is one of: RAPL counters (powercap), hwmon sensors, a BMC by IPMI
// DCMI or Redfish, a Raritan PDU or any other PDU by SNMP, or none, in which
// case the result says that power was not measured. Measure reads it before,
// during and after the work, and gives the energy of the window in J and its
// mean power in W, each with bounds; Derive divides the work by it: Gbit/s per
// W, joules per request. See Example.
//
// It refuses to give a number that the sensor cannot carry: when the window
// holds fewer than ten updates of the sensor or ten steps of a counter (it
// names the window that would do), when more than half of the readings
// failed, when the sensor was silent at the end, when a counter was reset. It
// changes nothing on any device, asks a BMC for no more privilege than a
// user's unless told to, follows no link to another host, and keeps credentials out of
// results and errors. It attributes nothing: the power is the host's, or the
// PDU's, and not that of a process.
//
// # What a result means
//
// Each source covers something else. RAPL counts processors and memory: no
// network card, no fan, no loss in a power supply. A BMC or a PDU has the whole
// host. Provenance.Covers says which; Gbit/s per W of one must not be compared
// with that of another. A host with two power supplies hangs on two inlets or
// outlets: name both, they are added up.
//
// Where there is a counter of energy, the energy is the difference of two
// readings (Method Counter). Otherwise it is the area under the samples of
// power (Method Samples). A PDU that has both is asked for both: the narrower
// interval is the Estimate, the other one the CrossCheck, and when the two
// exclude each other the result warns that the source contradicts itself.
//
// # Bounds
//
// The half-width of the interval is a sum (Uncertainty), of which all but
// SamplingJ are bounds:
//
//   - resolution. A counter's difference is off by less than one step, however
//     long the window. A gauge may round each reading the same way, so 1 W
//     remains 1 W in any window: of a PDU that counts in 10 W, at 300 W, 3 %.
//   - edges. A reading is as old as the update interval, takes time to fetch,
//     and does not fall on the window's ends. For a counter this is the highest
//     power seen times that time; for a gauge, the range of the readings times
//     twice the update interval and the polling interval.
//   - sampling. A gauge that reads instants misses what is between them. The 95 %
//     interval comes from the differences between successive updates (the error
//     of systematic sampling), so that a slow ramp is no error and jumping is.
//     Sensors that say they average have none.
//   - gaps. Readings that failed.
//   - accuracy. No protocol says how far a sensor is from the truth. The data
//     sheet does: accuracy. Without it the result carries a warning, and
//     the bounds are those of the reading and not of the power.
//
// Resolution and update interval come from the experiment's file, else from
// the sensor, else from the readings (the smallest and the median change; a
// counter of this machine is watched for 50 ms beforehand), else they are
// assumed on the safe side. Sensor.ResolutionFrom and UpdateIntervalFrom say
// which. Assumed are: 1 ms for RAPL (Intel's Software Developer's Manual,
// volume 3B, 15.10), 3 s for Raritan PDUs, 2 s for hwmon, 10 s for everything
// else, and 1 W where the protocol has no quantum of its own.
//
// An interval wider than ±5 % gets a warning with the window that would make
// it that narrow, or with what would remain in any window.
//
// # Sources and their traps
//
//   - rapl: powercap shows dram below package, but package does not contain it;
//     psys contains everything; intel-rapl-mmio is the same package again. What
//     overlaps is refused (domains: [package, core]) or left out. Counters wrap
//     after minutes at max_energy_range_uj; a step back that no wrap explains is
//     a reset. Since Linux 5.10 only root reads them (CVE-2020-8694).
//   - hwmon: drivers document neither wraps nor what a sensor is wired to, so
//     chip and sensors are named, and a wrap at 2^32 is assumed only where the
//     power stays plausible, with a warning.
//   - ipmi: DCMI Get Power Reading, "current power", whole watts, over RMCP+ with
//     cipher suite 17 or 3, or /dev/ipmiN. A BMC that wants more than a user's
//     rights says so (privilege). What a BMC updates every 10 s it may
//     claim to sample every second. 0 W and "not active" are errors.
//   - redfish: Chassis/…/EnvironmentMetrics, else Chassis/…/Power. PowerMetrics'
//     averages are over minutes and not used. Several chassis that report power
//     may contain each other, so they are named.
//   - raritan: PDU2-MIB, with the decimal digits and units that the PDU itself
//     gives; active power and, where there is one, active energy.
//   - snmp: model apc (PowerNet-MIB, 10 W and 0.1 kWh), or OIDs with unit and
//     scale. A Counter32 wraps at 2^32; anything else that goes back was reset.
//
// # Credentials
//
// Credentials names a file that only its owner, this user or root, can read
// (0600 or 0400; no link), or "env:PREFIX". The file has lines NAME=VALUE with
// NAME user and password (ipmi, redfish, SNMPv3), privacyPassword (SNMPv3,
// password if absent) or community (SNMPv2c); the environment has PREFIX_USER,
// PREFIX_PASSWORD, PREFIX_PRIVACYPASSWORD, PREFIX_COMMUNITY.
//
// Redfish verifies the BMC's certificate; ca-file names who vouches for it, and
// skip-verify puts a warning into the result. SNMP is version 3 with
// authentication and privacy unless the experiment asks for less, which the
// result shows in Provenance.Protocol.
package power
